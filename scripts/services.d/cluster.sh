# shellcheck shell=bash
# Joins several nodes to one cluster, and partitions it. Sourced by scripts/services.

# Succeeds if the nodes that were just started have joined one cluster. They find each other by their configuration.
are_joined() {
    ((${#NUMBERS[@]} == 1)) || rabbitmqctl 1 await_online_nodes "${#NUMBERS[@]}" --timeout "$START_TIMEOUT" </dev/null >&2
}

# The nodes that a node refuses: the key is its number, the value is their numbers.
declare -A REFUSED=()

# erlang_names NUMBER…: prints the names of the nodes as a list in Erlang.
erlang_names() {
    local n list=
    for n; do list+="${list:+,}'$(node_name "$n")'"; done
    say "[$list]"
}

# partition 'NAME NAME|NAME': makes each node refuse all nodes of the groups after its own, so that one node of each pair
# refuses the other. The smaller groups come first, because this needs the fewest calls.
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

# Lets the nodes connect again. They would reconnect by themselves with their next message; this connects them at once.
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
