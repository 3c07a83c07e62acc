# shellcheck shell=bash
# Runs throw-away instances until standard input ends. Sourced by scripts/services.

end_hold() {
    local role
    trap '' INT TERM HUP PIPE
    # The data is deleted, so the servers are killed instead of shut down.
    for role in "${NUMBERS[@]/#/rabbitmq}" redis epmd; do stop_role "$role" 0; done
    cd /
    rm -rf -- "$DIR"
}

# is_held NAME: succeeds if NAME is one of the servers of this hold.
is_held() {
    [[ ($1 == redis && $WANT_REDIS == yes) || ($WANT_RABBITMQ == yes && " ${NUMBERS[*]/#/rabbitmq} " == *" $1 "*) ]]
}

hold_line() {
    local verb rest role pid
    local -a words starting=()
    read -r verb rest <<<"$1"
    read -r -a words <<<"$rest"
    case $verb in
    ctl)
        role=rabbitmq
        if ((${#NUMBERS[@]} > 1)); then
            role=${words[0]:-}
            words=("${words[@]:1}")
        fi
        [[ $role == rabbitmq* ]] && is_held "$role" && rabbitmqctl "${role#rabbitmq}" "${words[@]}" </dev/null
        return
        ;;
    partition)
        partition "$rest"
        return
        ;;
    heal)
        heal
        return
        ;;
    esac
    ((${#words[@]})) || return 1
    for role in "${words[@]}"; do is_held "$role" || return 1; done
    for role in "${words[@]}"; do
        pid=$(pid_of "$role")
        case $verb in
        kill) stop_role "$role" 0 ;;
        stop) stop_role "$role" 30 ;;
        start) if [[ -z $pid ]]; then starting+=("$role"); fi ;;
        pause) [[ -n $pid ]] && kill -STOP "$pid" || return 1 ;;
        continue) [[ -n $pid ]] && kill -CONT "$pid" || return 1 ;;
        *) return 1 ;;
        esac
    done
    launch_all "${starting[@]}" && return
    if [[ ${starting[*]} == *rabbitmq* ]]; then rabbitmq_failure; fi
    return 1
}

cmd_hold() {
    local base line old n
    HOLD=yes
    if ((NODES > 1)); then mapfile -t NUMBERS < <(seq "$NODES"); fi
    [[ -r /proc/self/environ ]] || die $EXIT_MISSING "private instances need Linux with /proc mounted"
    ensure_packages
    base=${HATCHERY_HOLD_DIR:-${TMPDIR:-/tmp}}
    if [[ -n $DIR_FLAG ]]; then
        base=$DIR
        mkdir -p -- "$base" || die $EXIT_FAILED "can't make $base; --dir chooses another folder"
    fi
    # Remove the folders of killed holds, whose locks are free. A folder younger than a minute stays, because its hold may
    # not have taken the lock yet.
    for old in "$base"/hatchery-hold.*; do
        if [[ -O $old && -f $old/lock && -z $(find "$old/lock" -mmin -1) ]] && flock -n "$old/lock" true; then
            rm -rf -- "$old" 2>/dev/null || true
        fi
    done
    DIR=$(mktemp -d "$base/hatchery-hold.XXXXXXXX")
    DIR=$(cd -- "$DIR" && pwd -P)
    trap end_hold EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    trap 'exit 1' PIPE
    lock_dir
    if [[ $WANT_REDIS == yes ]]; then start_native_redis || exit $EXIT_FAILED; fi
    if [[ $WANT_RABBITMQ == yes ]]; then start_native_rabbitmq || exit $EXIT_FAILED; fi
    if [[ $WANT_RABBITMQ == yes ]]; then say "AMQP_URL=$(amqp_url)"; fi
    if [[ $WANT_REDIS == yes ]]; then say "REDIS_URL=$(redis_url)"; fi
    if [[ $WANT_RABBITMQ == yes ]]; then say "RABBITMQ_MANAGEMENT_URL=$(management_url)"; fi
    if ((NODES > 1)); then
        for n in "${NUMBERS[@]}"; do
            say "AMQP_URL_$n=$(amqp_url "$n")"
            say "RABBITMQ_MANAGEMENT_URL_$n=$(management_url "$n")"
        done
    fi
    say READY
    while IFS= read -r line; do
        [[ -n $line ]] || continue
        if hold_line "$line"; then say "DONE $line"; else say "FAILED $line"; fi
    done
    # Bash reads a script while it runs it. The exit keeps it from reading on in a file that has changed meanwhile.
    exit 0
}
