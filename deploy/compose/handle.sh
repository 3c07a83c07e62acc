#!/bin/sh
# The handler of the demo. It takes a moment, and fails as the payload asks.
set -eu

payload=$(cat)
sleep 0.05
case $payload in
*'"fails":"once"'*) times=1 ;;
*'"fails":"always"'*) times=100 ;;
*) times=0 ;;
esac
if [ "$EVENT_ATTEMPTS" -lt "$times" ]; then
  echo "the mail server does not answer" >&2
  exit 1
fi
echo "handled $payload"
