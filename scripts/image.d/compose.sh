# shellcheck shell=bash
# Starts docker-compose.yml and counts events while workers are killed and replaced. Sourced by scripts/image.

events=${HATCHERY_EVENTS:-3000}

stack() { docker compose --project-name "hatchery-check-$$" --file docker-compose.yml --file "$scratch/account.yml" "$@"; }

# With the container that publishes the batch, if that still runs.
take_down() { stack down --volumes --remove-orphans --timeout 5 >/dev/null 2>&1; }

try_compose() {
  docker compose version >/dev/null 2>&1 || { not_checked "docker-compose.yml: Docker Compose is not installed"; return; }
  local services=(rabbitmq redis apply worker publisher prometheus grafana) account=$scratch/account
  write_account "$account"
  # shellcheck disable=SC2046 # Lists of names.
  can_be_had $(stack config --images rabbitmq redis prometheus) || return 0
  # shellcheck disable=SC2046
  can_be_had $(stack config --images grafana | grep grafana) || services=("${services[@]:0:6}")
  build demo "$image-demo"
  after+=(take_down)
  stack up --detach --no-build "${services[@]}"
  metrics_move
  count_events "$account"
}

# The handlers write down what they have handled, in addition.
write_account() {
  mkdir -p "$1"
  chmod 1777 "$1"
  cat >"$1/handle.sh" <<'TXT'
#!/bin/sh
set -eu
answer=$(/demo/handle.sh)
echo "$EVENT_ID" >>/account/handled
echo "$answer"
TXT
  chmod 755 "$scratch" "$1/handle.sh"
  cat >"$scratch/account.yml" <<TXT
services:
  worker:
    command: [work, --exec, /account/handle.sh]
    volumes: ["$1:/account"]
TXT
  # Free ports, so that the stack starts beside others.
  export HATCHERY_AMQP_PORT=0 HATCHERY_MANAGEMENT_PORT=0 HATCHERY_REDIS_PORT=0 HATCHERY_PROMETHEUS_PORT=0 HATCHERY_GRAFANA_PORT=0
  export HATCHERY_DEMO_IMAGE=$image-demo
}

# wait_for SECONDS WHAT COMMAND…
wait_for() {
  local began=$SECONDS limit=$1 what=$2
  shift 2
  until "$@"; do
    [ $((SECONDS - began)) -lt "$limit" ] || { stack ps; stack logs --tail 20; die 1 "$what: not within $limit s"; }
    sleep 1
  done
  echo "$what: after $((SECONDS - began)) s"
}

# asked QUERY: prints the value of a query in Prometheus.
asked() {
  curl --fail --silent --get --data-urlencode "query=$1" "http://$(stack port prometheus 9090)/api/v1/query" |
    python3 -c 'import json, sys; print(*(row["value"][1] for row in json.load(sys.stdin)["data"]["result"]))'
}

above() { awk -v value="$(asked "$1" 2>/dev/null)" -v least="$2" 'BEGIN { exit !(value + 0 > least) }'; }

metrics_move() {
  wait_for 120 "Prometheus sees events handled" above 'sum(rate(hatchery_handled_total[1m]))' 1
  wait_for 60 "Prometheus sees both workers" above 'count(up{job="worker"} == 1)' 1
}

workers() { stack ps --quiet worker; }

# shellcheck disable=SC2046 # A list of ids.
two_are_ready() { [ "$(docker inspect --format '{{.State.Health.Status}}' $(workers) 2>/dev/null | grep -cx healthy)" = 2 ]; }

count_events() {
  local account=$1 publishing one old=()
  python3 - "$events" >"$account/events.ndjson" <<'PY'
import json, sys, uuid

for n in range(int(sys.argv[1])):
    event = {"type": "mail", "id": str(uuid.uuid4()), "payload": {"fails": "once" if n % 50 == 0 else "never"}}
    print(json.dumps(event | ({"delay": f"{n % 30 + 1}s"} if n % 3 == 0 else {}), separators=(",", ":")))
PY
  echo "publishing $events events, while one worker is killed and then both are replaced"
  stack run --rm --no-TTY --no-deps --entrypoint topology publisher publish --batch - -o ndjson \
    < <(pace "$account/events.ndjson") >"$account/published" 2>"$account/publisher.log" &
  publishing=$!
  sleep 5
  mapfile -t old < <(workers)
  docker kill "${old[0]}" >/dev/null
  echo "killed a worker; $(handled) events are handled"
  stack up --detach --no-build --no-recreate --no-deps worker >/dev/null 2>&1
  wait_for 60 "both workers are ready" two_are_ready
  for one in "${old[@]}"; do
    docker stop "$one" >/dev/null
    docker rm "$one" >/dev/null
    stack up --detach --no-build --no-recreate --no-deps worker >/dev/null 2>&1
    wait_for 60 "a worker is replaced" two_are_ready
  done
  wait "$publishing" || { cat "$account/publisher.log" >&2; die 1 "the publisher failed"; }
  wait_for 120 "all events are handled" all_handled "$account"
  account_for "$account"
}

# A hundred lines a second, so that events are under way all the time.
pace() { awk '{ print } NR % 50 == 0 { fflush(); system("sleep 0.5") }' "$1"; }

handled() { wc -l <"$account/handled"; }

all_handled() {
  python3 - "$1" <<'PY'
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
ids = {json.loads(line)["id"] for line in open(folder / "events.ndjson")}
sys.exit(not ids <= set((folder / "handled").read_text().split()))
PY
}

account_for() {
  python3 - "$1" <<'PY'
import collections, json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
ids = {json.loads(line)["id"] for line in open(folder / "events.ndjson")}
runs = collections.Counter(id for id in (folder / "handled").read_text().split() if id in ids)
twice = sum(count > 1 for count in runs.values())
print(f"published {len(ids)}, handled {len(runs)}, lost {len(ids - runs.keys())}, more than once {twice}")
PY
}
