# shellcheck shell=bash
# Starts, finds and stops our processes, chooses ports, and asks servers for answers. Sourced by scripts/services.

# owned PID ROLE: succeeds if the process is ours: its environment has our mark, and it has the same root folder.
owned() {
    local pid=$1 role=$2
    [[ $pid =~ ^[1-9][0-9]*$ && /proc/$pid/root -ef / ]] || return 1
    grep -qzxF -- "$MARK=$role:$DIR" "/proc/$pid/environ" 2>/dev/null && return 0
    # Redis before 6.2 writes its process title over its environment.
    [[ $role == redis && /proc/$pid/cwd -ef $DIR/redis && $(cat "/proc/$pid/comm" 2>/dev/null) == redis-server ]]
}

# marked ROLE: prints the ids of all our processes with this role, without the pid files.
marked() {
    local role=$1 path pid
    grep -lzxF -- "$MARK=$role:$DIR" /proc/[0-9]*/environ 2>/dev/null | while read -r path; do
        pid=${path#/proc/}
        pid=${pid%/environ}
        if owned "$pid" "$role"; then say "$pid"; fi
    done || true
}

exe() { basename -- "$(readlink "/proc/$1/exe" 2>/dev/null || true)"; }

# pid_of ROLE: prints the process id of rabbitmq, redis or epmd, or nothing if it doesn't run. The pid file may be wrong,
# so the process is checked.
pid_of() {
    local role=$1 pid=
    if [[ -f $DIR/$role.pid ]]; then read -r pid <"$DIR/$role.pid" || true; fi
    # `return 0`, because in a trap a bare `return` gives the status from before the trap.
    if owned "$pid" "$role"; then
        say "$pid"
        return 0
    fi
    for pid in $(marked "$role"); do
        case $role:$(exe "$pid") in
        rabbitmq*:beam* | redis:redis-* | epmd:epmd)
            say "$pid"
            return 0
            ;;
        esac
    done
    return 0
}

# spawn ROLE LOG CWD COMMAND…: starts a process with a clean environment in its own session. Sets SPAWNED to its id.
SPAWNED=
declare -A STARTED=()
spawn() {
    local role=$1 log=$2 cwd=$3
    shift 3
    local -a wrap=(setsid)
    # If hold itself is killed with SIGKILL, the kernel kills its servers too.
    if [[ $HOLD == yes ]] && setpriv --pdeathsig KILL true 2>/dev/null; then
        wrap+=(setpriv --pdeathsig KILL)
    fi
    (
        cd -- "$cwd"
        # Erlang allocates a table for as many files as the limit allows. The limit of a thousand million in some containers
        # would take gigabytes.
        limit=$(ulimit -Hn)
        if [[ $limit == unlimited ]] || ((limit > 65536)); then limit=65536; fi
        ulimit -n "$limit" 2>/dev/null || true
        # Close inherited files: another process may wait for the end of an inherited pipe, or for our lock.
        for fd in /proc/"$BASHPID"/fd/*; do
            fd=${fd##*/}
            if ((fd > 2)); then eval "exec $fd>&-" 2>/dev/null || true; fi
        done
        exec "${wrap[@]}" env -i "PATH=$SYSTEM_PATH" LANG=C.UTF-8 "$MARK=$role:$DIR" "$@"
    ) </dev/null >>"$log" 2>&1 &
    SPAWNED=$!
    STARTED[$SPAWNED]=$role
    disown # otherwise bash reports its end on standard error
    say "$SPAWNED" >"$DIR/$role.pid"
}

# ended PID: succeeds if all threads of the process have ended, so that it writes no more files. A zombie counts as ended.
ended() {
    local states
    states=$(grep -hs '^State:' /proc/"$1"/task/*/status) || true
    ! grep -q '[^ZX] (' <<<"$states"
}

# stop_pid PID ROLE SECONDS: sends SIGTERM, and SIGKILL if the process still runs after this time. With 0 seconds sends
# SIGKILL at once.
stop_pid() {
    local pid=$1 role=$2 patience=$3 i
    owned "$pid" "$role" || return 0
    if ((patience > 0)); then
        kill -TERM "$pid" 2>/dev/null || true
        for ((i = 0; i < patience * 20; i++)); do
            if ended "$pid"; then return 0; fi
            sleep 0.05
        done
    fi
    if owned "$pid" "$role"; then kill -KILL "$pid" 2>/dev/null || true; fi
    for ((i = 0; i < 250; i++)); do
        if ended "$pid"; then return 0; fi
        sleep 0.02
    done
    return 1
}

# stop_role ROLE SECONDS: stops the server, and then its remaining processes.
stop_role() {
    local role=$1 patience=$2 pid
    pid=$(pid_of "$role")
    if [[ -n $pid ]]; then stop_pid "$pid" "$role" "$patience" || true; fi
    # RabbitMQ's helpers, and the epmd that RabbitMQ starts by itself if ours does not run.
    for pid in $(marked "$role"); do
        stop_pid "$pid" "$role" 0 || note "services: process $pid ($role) does not end"
    done
    rm -f "$DIR/$role.pid"
}

# port_taken PORT: succeeds if a socket uses the port, in any state but TIME_WAIT.
port_taken() {
    local hex
    printf -v hex '%04X' "$1"
    grep -qsE "^ *[0-9]+: [0-9A-F]+:$hex [0-9A-F]+:[0-9A-F]+ (0[1-57-9A-F])" /proc/net/tcp /proc/net/tcp6 && return 0
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

declare -A CHOSEN=()

# choose_port KEY [ASKED USUAL]: sets STATE[KEY] to a free port. It tries the port that the user asked for, then the
# remembered one, then the usual one and those after it. In hold mode, or without a usual port, it takes a random port
# below those that the system gives to outgoing connections.
choose_port() {
    local key=$1 asked=${2:-} usual=${3:-} port i
    local -a tries=()
    [[ $asked =~ ^([1-9][0-9]*)?$ ]] || die $EXIT_USAGE "not a port: $asked"
    if [[ $HOLD == no ]]; then
        tries+=(${asked:+"$asked"} ${STATE[$key]:+"${STATE[$key]}"})
        if [[ -n $usual ]]; then
            for ((i = 0; i < 50; i++)); do tries+=($((usual + i))); done
        fi
    fi
    for ((i = 0; i < 50; i++)); do tries+=($((20000 + ${SRANDOM:-$((RANDOM * 32768 + RANDOM))} % 12000))); done
    for port in "${tries[@]}"; do
        if [[ -z ${CHOSEN[$port]:-} ]] && ! port_taken "$port"; then
            CHOSEN[$port]=$key
            STATE[$key]=$port
            return 0
        fi
    done
    die $EXIT_FAILED "found no free port"
}

# talk HOST PORT BYTES REQUEST: sends the request (in printf's escapes), and prints at most BYTES bytes of the answer.
talk() {
    # shellcheck disable=SC2016
    timeout 4 bash -c 'exec 3<>"/dev/tcp/$0/$1" && printf "$3" >&3 && head -c "$2" <&3' "$@" 2>/dev/null
}

tcp_answers() { talk "$1" "$2" 0 ''; }

redis_answers() { [[ $(talk "$1" "$2" 5 'PING\r\n') == @(+PONG|-NOAU) ]]; }

redis_info() { talk 127.0.0.1 "${STATE[redis_port]}" 100000 'INFO server\r\nQUIT\r\n' || true; }

# overview NUMBER: prints the overview of a node's management API as the user guest, with the headers.
overview() {
    talk 127.0.0.1 "${STATE[management_port$1]}" 1000000 \
        'GET /api/overview HTTP/1.0\r\nHost: localhost\r\nAuthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n\r\n' | tr -d '\0' || true
}

version_of() {
    local pattern='redis_version:([0-9.]+)' answer
    if [[ $1 == rabbitmq ]]; then
        answer=$(overview '')
        pattern='"rabbitmq_version":"([^"]+)"'
    else
        answer=$(redis_info)
    fi
    if [[ $answer =~ $pattern ]]; then say "${BASH_REMATCH[1]}"; fi
}
