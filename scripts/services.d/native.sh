# shellcheck shell=bash
# Runs private instances of the installed packages. Sourced by scripts/services.

secret() { od -An -N20 -tx1 /dev/urandom | tr -d ' \n'; }

# The numbers of the nodes. The functions below take a number, which is part of the role, of the node's name and of the
# keys of its ports. A single node has an empty number.
NUMBERS=('')

node_name() { printf 'hatchery%s@localhost' "$1"; }

# Sets RABBITMQ_ENV to the environment for RabbitMQ's scripts, one assignment an element. All files are in our own folder,
# so that nothing in /etc/rabbitmq has an effect.
rabbitmq_env() {
    local n=$1 base=$DIR/rabbitmq$1
    RABBITMQ_ENV=(
        "HOME=$base"
        "ERL_EPMD_PORT=${STATE[epmd_port]}"
        ERL_EPMD_ADDRESS=127.0.0.1
        # Erlang resolves localhost from this file, and not from this machine's files or name server.
        "ERL_INETRC=$base/inetrc"
        "ERL_CRASH_DUMP=$base/log/erl_crash.dump"
        ERL_CRASH_DUMP_SECONDS=10
        "RABBITMQ_NODENAME=$(node_name "$n")"
        RABBITMQ_USE_LONGNAME=false
        "RABBITMQ_DIST_PORT=${STATE[dist_port$n]}"
        "RABBITMQ_MNESIA_BASE=$base/data"
        "RABBITMQ_LOG_BASE=$base/log"
        "RABBITMQ_ENABLED_PLUGINS_FILE=$base/enabled_plugins"
        "RABBITMQ_CONF_ENV_FILE=$base/rabbitmq-env.conf"
        "RABBITMQ_CONFIG_FILE=$base/rabbitmq.conf"
        "RABBITMQ_CONFIG_FILES=$base/conf.d/*.conf"
        "RABBITMQ_ADVANCED_CONFIG_FILE=$base/advanced.config"
        "RABBITMQ_PID_FILE=$base/node.pid"
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}"
        # Makes the start script exec the Erlang node instead of waiting for it as its parent.
        RUNNING_UNDER_SYSTEMD=true
    )
}

# rabbitmqctl NUMBER ARGUMENTS…
rabbitmqctl() {
    rabbitmq_env "$1"
    shift
    env -i "PATH=$SYSTEM_PATH" LANG=C.UTF-8 "${RABBITMQ_ENV[@]}" "$RABBITMQ_BIN/rabbitmqctl" "$@"
}

# The Erlang cookie, the same for all nodes of a cluster.
COOKIE=

write_rabbitmq_files() {
    local n=$1 base=$DIR/rabbitmq$1 interval=5000 number
    if [[ $HOLD == yes ]]; then interval=1000; fi
    COOKIE=${COOKIE:-$(secret)}
    (
        umask 077
        mkdir -p "$base/data" "$base/log" "$base/conf.d"
        if [[ ! -s $base/.erlang.cookie ]]; then
            say "$COOKIE" >"$base/.erlang.cookie"
            chmod 400 "$base/.erlang.cookie"
        fi
        : >"$base/rabbitmq-env.conf"
        printf '[].\n' >"$base/advanced.config"
        printf '[rabbitmq_management,rabbitmq_prometheus].\n' >"$base/enabled_plugins"
        printf '%s\n' '{host, {127,0,0,1}, ["localhost"]}.' '{lookup, [file, native]}.' >"$base/inetrc"
        cat >"$base/rabbitmq.conf" <<CONF
# Written by scripts/services at every start. Put your own settings into conf.d beside this file.
listeners.tcp.local = 127.0.0.1:${STATE[amqp_port$n]}
management.tcp.ip = 127.0.0.1
management.tcp.port = ${STATE[management_port$n]}
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = ${STATE[prometheus_port$n]}
vm_memory_high_watermark.relative = 0.4
disk_free_limit.absolute = 50MB
# Quorum queues keep up to three of these in memory; the default of 512 MB each is for large machines.
raft.wal_max_size_bytes = 67108864
collect_statistics_interval = $interval
log.file.level = info
CONF
        if ((${#NUMBERS[@]} > 1)); then
            say "cluster_formation.peer_discovery_backend = classic_config"
            for number in "${NUMBERS[@]}"; do
                say "cluster_formation.classic_config.nodes.$number = $(node_name "$number")"
            done
        fi >>"$base/rabbitmq.conf"
        rm -f "$base/conf.d/given.conf"
        if [[ -n ${HATCHERY_RABBITMQ_CONF:-} ]]; then cp -- "$HATCHERY_RABBITMQ_CONF" "$base/conf.d/given.conf"; fi
    )
}

start_epmd() {
    if [[ -n $(pid_of epmd) ]]; then return 0; fi
    spawn epmd "$DIR/epmd.log" "$DIR" epmd -port "${STATE[epmd_port]}" -address 127.0.0.1
    local i
    for ((i = 0; i < 100; i++)); do
        if tcp_answers 127.0.0.1 "${STATE[epmd_port]}"; then return 0; fi
        sleep 0.02
    done
    return 1
}

choose_rabbitmq_ports() {
    local n
    for n in "${NUMBERS[@]}"; do
        choose_port "amqp_port$n" "${HATCHERY_AMQP_PORT:-}" 5682
        choose_port "management_port$n" "${HATCHERY_MANAGEMENT_PORT:-}" 15682
        choose_port "prometheus_port$n"
        choose_port "dist_port$n"
    done
    # If our epmd still runs without its node, it keeps its port.
    if [[ -z $(pid_of epmd) ]]; then choose_port epmd_port; fi
}

launch_rabbitmq() {
    local n=$1 base=$DIR/rabbitmq$1
    write_rabbitmq_files "$n"
    start_epmd || return 1
    rabbitmq_env "$n"
    rm -f "$base/node.pid"
    : >"$base/log/start.log"
    spawn "rabbitmq$n" "$base/log/start.log" "$base" "${RABBITMQ_ENV[@]}" "$RABBITMQ_BIN/rabbitmq-server"
}

# launch ROLE: starts its process, and sets SPAWNED to the process id.
launch() {
    case $1 in
    redis) launch_redis ;;
    rabbitmq*) launch_rabbitmq "${1#rabbitmq}" ;;
    esac
}

# launch_all ROLE…: starts all of them at once, and waits until they are ready. A node may need the others for that.
launch_all() {
    local role i=0
    local -a pids=()
    for role; do
        launch "$role" || return 1
        pids+=("$SPAWNED")
    done
    for role; do
        wait_for "$role" "${pids[i++]}" || return 1
    done
}

# Succeeds if our node, and no other, serves both ports. The overview of the management API names the node and its
# listeners. (An AMQP handshake would leave a warning in RabbitMQ's log each time.)
rabbitmq_ready() {
    local n=$1 answer
    answer=$(overview "$n")
    case $answer in
    HTTP/1.?' 200'*) [[ $answer == *"\"node\":\"$(node_name "$n")\""* && $answer =~ \"port\":${STATE[amqp_port$n]}[^0-9] ]] ;;
    # The user has changed guest's password.
    HTTP/1.?' 401'*) tcp_answers 127.0.0.1 "${STATE[amqp_port$n]}" ;;
    *) return 1 ;;
    esac
}

ready() {
    case $1 in
    redis) redis_ready ;;
    rabbitmq*) rabbitmq_ready "${1#rabbitmq}" ;;
    esac
}

# wait_for ROLE PID: waits until the server is ready. Returns 1 if it ended by itself or takes too long.
wait_for() {
    local role=$1 pid=$2 deadline=$((SECONDS + START_TIMEOUT))
    while ((SECONDS < deadline)); do
        owned_or_starting "$pid" "$role" || return 1
        if ready "$role"; then
            if owned_or_starting "$pid" "$role"; then return 0; else return 1; fi
        fi
        sleep 0.1
    done
    return 1
}

# Succeeds if the process is ours. A process that was just forked has no mark yet, so being alive is enough for it.
owned_or_starting() { owned "$1" "$2" || { [[ -n ${STARTED[$1]:-} ]] && kill -0 "$1" 2>/dev/null; }; }

rabbitmq_failure() {
    local log
    note "services: RabbitMQ did not start. The end of its logs:"
    for log in "$DIR"/epmd.log "$DIR"/rabbitmq*/log/*.log; do
        if [[ -s $log ]]; then
            note "--- $log"
            tail -n 15 -- "$log" >&2
        fi
    done
    if [[ $HOLD == no ]]; then
        note "If the data was written by another version of RabbitMQ, scripts/services down --purge deletes it."
    fi
}

stop_rabbitmq() {
    local n
    for n in "${NUMBERS[@]}"; do stop_role "rabbitmq$n" "$1"; done
}

start_native_rabbitmq() {
    local try pid
    pid=$(pid_of rabbitmq)
    if [[ -n $pid ]]; then
        # Without the state file its ports are unknown, so it is stopped and started again.
        if [[ -n ${STATE[amqp_port]:-} ]]; then
            start_epmd || true
            if wait_for rabbitmq "$pid"; then return 0; fi
        fi
        stop_role rabbitmq 10
    fi
    if [[ -z ${STATE[epmd_port]:-} ]]; then stop_role epmd 2; fi
    for try in 1 2 3; do
        choose_rabbitmq_ports
        STATE[rabbitmq_way]=native
        [[ $HOLD == yes ]] || save_state
        if launch_all "${NUMBERS[@]/#/rabbitmq}" && are_joined; then return 0; fi
        # Another process may have taken a port since the check.
        if ((try < 3)) && grep -qs -e eaddrinuse -e 'in use' "$DIR"/epmd.log "$DIR"/rabbitmq*/log/*.log; then
            stop_rabbitmq 0
            stop_role epmd 0
            rm -f "$DIR"/epmd.log "$DIR"/rabbitmq*/log/*.log
            continue
        fi
        break
    done
    rabbitmq_failure
    stop_rabbitmq 0
    stop_role epmd 0
    return 1
}

launch_redis() {
    local base=$DIR/redis version persistence='appendonly yes'
    if [[ $HOLD == yes ]]; then persistence='appendonly no'; fi
    local quoted=${base//\\/\\\\}
    quoted=${quoted//\"/\\\"}
    (
        umask 077
        mkdir -p "$base"
        {
            say "# Written by scripts/services at every start."
            say "bind 127.0.0.1"
            say "port ${STATE[redis_port]}"
            say "dir \"$quoted\""
            say 'save ""'
            say "$persistence"
            say "daemonize no"
            version=$(PATH=$SYSTEM_PATH redis-server --version)
            # Redis would write its process title over the environment, by which we recognise it. Redis before 6.2 cannot
            # turn this off.
            if [[ $version =~ v=([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 100 + BASH_REMATCH[2] >= 602)); then
                say "set-proc-title no"
            fi
            if [[ -n ${HATCHERY_REDIS_CONF:-} ]]; then cat -- "$HATCHERY_REDIS_CONF"; fi
        } >"$base/redis.conf"
        : >"$base/redis.log"
    )
    spawn redis "$base/redis.log" "$base" redis-server "$base/redis.conf"
}

redis_ready() {
    local info pid
    info=$(redis_info)
    [[ $info =~ process_id:([0-9]+) ]] || return 1
    pid=${BASH_REMATCH[1]}
    owned "$pid" redis && redis_answers 127.0.0.1 "${STATE[redis_port]}"
}

start_native_redis() {
    local try pid
    pid=$(pid_of redis)
    if [[ -n $pid ]]; then
        if [[ -n ${STATE[redis_port]:-} ]] && wait_for redis "$pid"; then return 0; fi
        stop_role redis 10
    fi
    for try in 1 2 3; do
        choose_port redis_port "${HATCHERY_REDIS_PORT:-}" 6389
        STATE[redis_way]=native
        [[ $HOLD == yes ]] || save_state
        if launch_all redis; then return 0; fi
        if ((try < 3)) && grep -qs 'in use' "$DIR/redis/redis.log"; then continue; fi
        break
    done
    note "services: Redis did not start. The end of its log:"
    tail -n 15 -- "$DIR/redis/redis.log" >&2 || true
    stop_role redis 0
    return 1
}
