#!/bin/bash
# Succeeds if the worker consumes. The image has no HTTP client.
set -eu

exec 3<>/dev/tcp/127.0.0.1/9464
printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3
read -r _ status _ <&3
[ "$status" = 200 ]
