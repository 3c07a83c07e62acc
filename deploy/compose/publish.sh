#!/bin/sh
# Publishes ten mails and five changes of stock a second. Of 50 mails one fails once; of 300 one fails always, and becomes a
# dead letter; every tenth is delayed.
set -eu

events() {
  awk 'BEGIN {
    for (n = 1; ; n++) {
      fails = n % 300 == 0 ? "always" : n % 50 == 0 ? "once" : "never"
      delay = n % 10 == 0 ? ",\"delay\":\"" (n % 20 == 0 ? "5s" : "7s") "\"" : ""
      printf "{\"type\":\"mail\",\"payload\":{\"to\":%d,\"fails\":\"%s\"}%s}\n", n, fails, delay
      if (n % 2 == 0)
        printf "{\"type\":\"stock\",\"reference\":\"item-%d\",\"payload\":{\"left\":%d}}\n", n % 7, n
      if (n % 10 == 0) {
        fflush()
        if (system("sleep 1") != 0) exit
      }
    }
  }'
}

events | topology publish --batch - -o ndjson >/dev/null
