# shellcheck shell=bash
# Prints the URLs of our own servers, and reads those that the user gave. Sourced by scripts/services.

# amqp_url and management_url take the numbers of nodes. Without one they print the URLs of all nodes.
amqp_url() { urls amqp_port 'amqp://guest:guest@127.0.0.1:%s/%%2f' "$@"; }
redis_url() { printf 'redis://127.0.0.1:%s/0' "${STATE[redis_port]}"; }
management_url() { urls management_port 'http://guest:guest@127.0.0.1:%s' "$@"; }

urls() {
    local key=$1 format=$2 n comma=
    shift 2
    (($#)) || set -- "${NUMBERS[@]}"
    for n; do
        # shellcheck disable=SC2059
        printf "$comma$format" "${STATE[$key$n]}"
        comma=,
    done
}

# masked URL: prints the URL with *** instead of its password, also of one in the query.
masked() {
    local url=$1 scheme rest
    if [[ $url == *://* ]]; then
        scheme=${url%%://*}
        rest=${url#*://}
        if [[ $rest == *@* ]]; then
            if [[ ${rest%@*} == *:* ]]; then rest="${rest%%:*}:***@${rest##*@}"; fi
        fi
        url="$scheme://$rest"
    fi
    printf '%s' "$url" | sed -E 's/([?&](password|pass|token|auth)=)[^&#]*/\1***/Ig'
}

# split_url URL: sets HOST and PORT.
HOST=
PORT=
split_url() {
    local url=$1 rest default
    case $url in
    amqp://*) default=5672 ;;
    amqps://*) default=5671 ;;
    redis://* | rediss://*) default=6379 ;;
    *) return 1 ;;
    esac
    rest=${url#*://}
    rest=${rest##*@}
    rest=${rest%%[/?#]*}
    if [[ $rest == \[*\]* ]]; then
        HOST=${rest%%\]*}
        HOST=${HOST#\[}
        PORT=${rest##*\]}
        PORT=${PORT#:}
    else
        HOST=${rest%%:*}
        PORT=
        [[ $rest == *:* ]] && PORT=${rest##*:}
    fi
    HOST=${HOST:-localhost}
    PORT=${PORT:-$default}
    [[ $PORT =~ ^[0-9]+$ ]]
}

declare -A GIVEN=()

given() { [[ -n ${GIVEN[$1]:-} ]]; }

# Notes in GIVEN whether AMQP_URL and REDIS_URL name servers of the user. A URL that `env` printed for our own instance does
# not count, unless another process has its port now.
note_given() {
    [[ -z $FORCE && $HOLD == no ]] || return 0
    if [[ -n ${AMQP_URL:-} ]] && ! { [[ -n ${STATE[amqp_port]:-} && $AMQP_URL == "$(amqp_url)" ]] &&
        ours_or_free rabbitmq "${STATE[amqp_port]}"; }; then
        GIVEN[rabbitmq]=yes
    fi
    if [[ -n ${REDIS_URL:-} ]] && ! { [[ -n ${STATE[redis_port]:-} && $REDIS_URL == "$(redis_url)" ]] &&
        ours_or_free redis "${STATE[redis_port]}"; }; then
        GIVEN[redis]=yes
    fi
}

ours_or_free() { [[ ${STATE[$1_way]:-} == docker || -n $(pid_of "$1") ]] || ! tcp_answers 127.0.0.1 "$2"; }

given_answers() {
    local url
    if [[ $1 == rabbitmq ]]; then url=$AMQP_URL; else url=$REDIS_URL; fi
    if [[ $url == unix://* || $url == redis+unix://* ]]; then
        url=${url#*://}
        if [[ -S ${url%%\?*} ]]; then return 0; else return 1; fi
    fi
    split_url "$url" || die $EXIT_USAGE "can't read $(masked "$url"): expected amqp://, amqps://, redis:// or rediss://"
    tcp_answers "$HOST" "$PORT"
}
