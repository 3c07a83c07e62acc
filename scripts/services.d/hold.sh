# shellcheck shell=bash
# Throw-away instances for as long as somebody reads. Read by scripts/services.

end_hold() {
    local role
    trap '' INT TERM HUP PIPE
    # The data is thrown away: no need to shut down in order.
    for role in rabbitmq redis epmd; do stop_role "$role" 0; done
    cd /
    rm -rf -- "$DIR"
}

hold_line() {
    local verb role
    read -r verb role <<<"$1"
    if [[ $verb == ctl && $WANT_RABBITMQ == yes ]]; then
        local -a arguments
        read -r -a arguments <<<"$role"
        rabbitmqctl "${arguments[@]}" </dev/null >&2
        return
    fi
    [[ ($role == rabbitmq && $WANT_RABBITMQ == yes) || ($role == redis && $WANT_REDIS == yes) ]] || return 1
    case $verb in
    kill) stop_role "$role" 0 ;;
    stop) stop_role "$role" 30 ;;
    start)
        [[ -z $(pid_of "$role") ]] || return 0
        "launch_$role" && wait_for "$role" "$SPAWNED"
        ;;
    *) return 1 ;;
    esac
}

cmd_hold() {
    local base line old
    HOLD=yes
    [[ -r /proc/self/environ ]] || die $EXIT_MISSING "private instances need Linux with /proc mounted"
    ensure_packages
    base=${TMPDIR:-/tmp}
    if [[ -n $DIR_FLAG ]]; then
        base=$DIR
        mkdir -p -- "$base" || die $EXIT_FAILED "can't make $base; --dir chooses another folder"
    fi
    # What a killed one left: nobody has its lock any more.
    # (Not younger than a minute: it may be about to take its lock.)
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
    say READY
    while IFS= read -r line; do
        [[ -n $line ]] || continue
        if hold_line "$line"; then say "DONE $line"; else say "FAILED $line"; fi
    done
    # Bash reads a script as it goes: it must not read on, should the file have changed meanwhile.
    exit 0
}
