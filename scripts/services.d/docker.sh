# shellcheck shell=bash
# Runs the services with Docker Compose. Sourced by scripts/services.

COMPOSE=()
WHY_NOT_DOCKER=

find_compose() {
    COMPOSE=()
    if ! command -v docker >/dev/null; then
        WHY_NOT_DOCKER="docker is not installed"
    elif ! timeout 15 docker info >/dev/null 2>&1; then
        WHY_NOT_DOCKER="no Docker engine answers"
    elif docker compose version >/dev/null 2>&1; then
        COMPOSE=(docker compose)
    elif command -v docker-compose >/dev/null; then
        COMPOSE=(docker-compose)
    else
        WHY_NOT_DOCKER="Docker Compose is not installed"
    fi
    ((${#COMPOSE[@]}))
}

# Each folder is a project of its own, so that two checkouts don't share containers.
compose() {
    local project
    project=hatchery-$(printf '%s' "$DIR" | cksum | cut -d' ' -f1)
    HATCHERY_AMQP_PORT=${STATE[amqp_port]:-5682} HATCHERY_MANAGEMENT_PORT=${STATE[management_port]:-15682} \
        HATCHERY_REDIS_PORT=${STATE[redis_port]:-6389} \
        "${COMPOSE[@]}" -p "$project" -f "$ROOT/docker-compose.yml" "$@"
}

# images SERVICE: prints the name of its image.
images() {
    compose config 2>/dev/null |
        awk -v service="$1:" '/^  [^ ]/ { name = $1 } name == service && $1 == "image:" { print $2 }'
}

docker_has_images() {
    local service image
    for service in "$@"; do
        for image in $(images "$service"); do
            docker image inspect "$image" >/dev/null 2>&1 && continue
            note "Getting the image $image …"
            if ! timeout "$PULL_TIMEOUT" docker pull "$image" >&2; then
                WHY_NOT_DOCKER="the image $image can't be pulled"
                return 1
            fi
        done
    done
}

container_runs() { [[ -n $(compose ps -q "$1" 2>/dev/null | xargs -r docker inspect -f '{{if .State.Running}}yes{{end}}') ]]; }

docker_rabbitmq_ready() {
    local answer
    answer=$(overview '')
    [[ $answer == HTTP/1.?' 401'* || $answer == *'"protocol":"amqp"'* ]]
}
docker_redis_ready() { redis_answers 127.0.0.1 "${STATE[redis_port]}"; }

start_docker() {
    local service deadline
    for service in "$@"; do
        if ! container_runs "$service"; then
            if [[ $service == rabbitmq ]]; then
                choose_port amqp_port "${HATCHERY_AMQP_PORT:-}" 5682
                choose_port management_port "${HATCHERY_MANAGEMENT_PORT:-}" 15682
            else
                choose_port redis_port "${HATCHERY_REDIS_PORT:-}" 6389
            fi
        fi
        STATE[${service}_way]=docker
    done
    save_state
    if ! compose up -d "$@" >&2; then
        note "services: Docker Compose could not start $*; --native uses the packages instead."
        return 1
    fi
    deadline=$((SECONDS + START_TIMEOUT))
    for service in "$@"; do
        until "docker_${service}_ready"; do
            if ((SECONDS > deadline)); then
                note "services: the container of $service does not answer. The end of its log:"
                compose logs --tail=30 "$service" >&2 || true
                return 1
            fi
            sleep 0.5
        done
    done
}
