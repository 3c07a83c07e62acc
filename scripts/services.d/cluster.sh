# shellcheck shell=bash
# Several nodes as one cluster, and how they part. Read by scripts/services.

# Whether the nodes that were just started are one cluster. They find each other by their configuration.
are_joined() {
    ((${#NUMBERS[@]} == 1)) || rabbitmqctl 1 await_online_nodes "${#NUMBERS[@]}" --timeout "$START_TIMEOUT" </dev/null >&2
}

# For each node that refuses others, by its number: their numbers.
declare -A REFUSED=()

# erlang_names NUMBER…: the nodes as a list in Erlang.
erlang_names() {
    local n list=
    for n; do list+="${list:+,}'$(node_name "$n")'"; done
    say "[$list]"
}

# partition 'NAME NAME|NAME': a node refuses all nodes of the groups after its own, so that each pair is parted by one of the two.
# The smaller groups come first, for which the fewest calls are needed.
partition() {
    local group role n
    local -a groups members names others
    mapfile -t groups < <(tr '|' '\n' <<<"$1" | awk '{ print NF, $0 }' | sort -n | cut -d ' ' -f 2-)
    ((${#groups[@]} > 1)) || return 1
    for role in ${groups[*]}; do
        [[ $role == rabbitmq?* ]] && is_held "$role" || return 1
        names+=("$role")
    done
    [[ -z $(printf '%s\n' "${names[@]}" | sort | uniq -d) ]] || return 1
    others=("${names[@]#rabbitmq}")
    for group in "${groups[@]}"; do
        read -r -a members <<<"$group"
        others=("${others[@]:${#members[@]}}")
        ((${#others[@]})) || break
        for n in "${members[@]#rabbitmq}"; do
            REFUSED[$n]=${others[*]}
            rabbitmqctl "$n" eval "[begin erlang:set_cookie(N, parted), erlang:disconnect_node(N) end || N <- $(erlang_names "${others[@]}")]." </dev/null >&2 ||
                return 1
        done
    done
}

# The nodes reconnect by themselves as soon as one has something to say to the other; here it says so at once.
heal() {
    local n
    local -a others
    for n in "${!REFUSED[@]}"; do
        read -r -a others <<<"${REFUSED[$n]}"
        rabbitmqctl "$n" eval "[begin erlang:set_cookie(N, erlang:get_cookie()), net_kernel:connect_node(N) end || N <- $(erlang_names "${others[@]}")]." </dev/null >&2 ||
            return 1
        unset "REFUSED[$n]"
    done
}
