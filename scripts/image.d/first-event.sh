#!/usr/bin/env bash
# Handles a first event where there is nothing but the command: `topology init`, then `topology dev`, in the folder /work. Prints how long
# it took. Arguments: the command line that runs `topology`, the one that runs it beside `topology dev`, and a file for what `dev` prints.
set -euo pipefail
read -ra alone <<<"$1"
read -ra beside <<<"$2"
out=$3
file=/work/topology.yaml

"${alone[@]}" init -f $file >/dev/null
began=$EPOCHREALTIME limit=$((SECONDS + 60))
"${alone[@]}" dev -f $file --echo >"$out" 2>&1 &
dev=$!
trap 'kill "$dev" 2>/dev/null || true' EXIT
is_published=false
until grep -qxF 'mail {"to": "ann"}' "$out"; do
  if ! kill -0 "$dev" 2>/dev/null || [ $SECONDS -ge $limit ]; then
    cat "$out" >&2
    echo "first-event: topology dev has handled no event" >&2
    exit 1
  fi
  if ! $is_published && "${beside[@]}" publish mail --payload '{"to": "ann"}' --server http://127.0.0.1:8080 >/dev/null 2>&1; then
    is_published=true
  fi
  sleep 0.02
done
awk -v began="$began" -v ended="$EPOCHREALTIME" \
  'BEGIN { printf "the first event is handled %.1f s after topology init, without servers\n", ended - began }'
kill "$dev"
wait "$dev"
grep -qE '^  succeeded +1$' "$out" || { cat "$out" >&2; exit 1; }
