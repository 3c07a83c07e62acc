# shellcheck shell=bash
# Debian and Ubuntu packages. Read by scripts/services.

missing_packages() {
    if [[ $WANT_RABBITMQ == yes ]] && ! [[ -x $RABBITMQ_BIN/rabbitmq-server && -n $(PATH=$SYSTEM_PATH command -v erl) &&
        -n $(PATH=$SYSTEM_PATH command -v epmd) ]]; then
        say rabbitmq-server
    fi
    if [[ $WANT_REDIS == yes && -z $(PATH=$SYSTEM_PATH command -v redis-server) ]]; then say redis-server; fi
    # Rust links with `cc`, and some crates have a little C in them.
    if [[ $WANT_BUILD == yes ]] && ! { command -v cc >/dev/null && has_libc_headers; }; then printf '%s\n' gcc libc6-dev; fi
    if [[ $WANT_PYTHON == yes ]] && ! has_pika; then say python3-pika; fi
}

# The Python that comes first may be somebody's own, which knows nothing of the packages.
has_pika() {
    local python
    for python in python3 /usr/bin/python3; do "$python" -c 'import pika' 2>/dev/null && return; done
    return 1
}

has_libc_headers() { cc -E -include stdlib.h -x c /dev/null >/dev/null 2>&1; }

# The flags for `install` that ask for the same packages.
install_flags() {
    case $WANT_RABBITMQ$WANT_REDIS in
    yesno) say --rabbitmq-only ;;
    noyes) say --redis-only ;;
    nono) say --build-only ;;
    esac
    if [[ $WANT_RABBITMQ$WANT_REDIS == *yes* && $WANT_BUILD == yes ]]; then say --build; fi
    if [[ $WANT_PYTHON == yes ]]; then say --python; fi
}

# The one line that somebody has to type.
install_line() {
    local line
    line="$(printf '%q' "$SELF") install --yes$(install_flags | sed 's/^/ /' | tr -d '\n')"
    if ((EUID == 0)); then
        say "$line"
    elif command -v sudo >/dev/null; then
        say "sudo $line"
    else
        say "su -c $(printf '%q' "$line")"
    fi
}

missing() {
    die $EXIT_MISSING "$@" "to install them (without starting anything of the system's), type:" "  $(install_line)"
}

# Sees to it that the packages are there. All that this prints goes to standard error.
ensure_packages() {
    local -a packages
    local answer
    mapfile -t packages < <(missing_packages)
    ((${#packages[@]})) || return 0
    command -v apt-get >/dev/null || die $EXIT_MISSING \
        "not found: ${packages[*]}; and this is no Debian or Ubuntu, so they can't be installed from here." \
        "Install a C compiler or Python's pika (python3 -m pip install pika) yourself if that is missing. For RabbitMQ and Redis either start Docker, or install them" \
        "yourself, or set AMQP_URL and REDIS_URL to servers to use."
    if [[ $YES != yes && ${CI:-} != true ]]; then
        [[ -t 0 && -t 2 ]] || missing "not installed: ${packages[*]}"
        read -r -p "Not installed: ${packages[*]}. Install with apt-get now? [y/N] " answer || answer=
        [[ $answer == [yY] || $answer == [yY][eE][sS] ]] || missing "not installed: ${packages[*]}"
    fi
    if ((EUID != 0)); then
        command -v sudo >/dev/null || missing "not installed: ${packages[*]}; that needs root, and there is no sudo"
        local -a sudo=(sudo)
        local -a flags
        mapfile -t flags < <(install_flags)
        [[ -t 0 ]] || sudo+=(-n)
        "${sudo[@]}" -- "$(readlink -f -- "$SELF")" install --yes "${flags[@]}" >&2 || missing "could not install: ${packages[*]}"
    else
        # In a process of its own, so that its trap is its own too.
        (install_as_root) </dev/null >&2 || die $EXIT_FAILED "apt-get could not install ${packages[*]}; its reason is above"
    fi
    mapfile -t packages < <(missing_packages)
    ((${#packages[@]} == 0)) || die $EXIT_FAILED "still missing after the installation: ${packages[*]}"
}

readonly POLICY=/usr/sbin/policy-rc.d
readonly POLICY_TEXT='#!/bin/sh
# Put here by scripts/services of hatchery while it installs packages, so that none starts a service. Safe to remove.
exit 101'

install_as_root() {
    local -a packages
    # One installation at a time; whoever waited looks again.
    if [[ -d /var/lib/apt/lists ]]; then
        exec {APT_FD}</var/lib/apt/lists
        flock -w 600 "$APT_FD" || true
    fi
    mapfile -t packages < <(missing_packages)
    ((${#packages[@]})) || return 0
    local erlang=yes
    command -v epmd >/dev/null || erlang=no
    note "Installing ${packages[*]} with apt-get; no service of the system's is started."
    trap 'remove_policy' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if [[ ! -e $POLICY ]]; then
        printf '%s\n' "$POLICY_TEXT" >"$POLICY"
        chmod 755 "$POLICY"
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=300 update || note "services: apt-get update failed, trying with the lists as they are"
    apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${packages[@]}" || return 1
    # The packages also enable their services for the next boot. Nobody asked for these.
    if command -v systemctl >/dev/null; then
        local -a units=()
        local package
        for package in "${packages[@]}"; do
            if [[ $package == *-server ]]; then units+=("$package.service"); fi
        done
        if [[ $erlang == no ]]; then units+=(epmd.service epmd.socket); fi
        ((${#units[@]} == 0)) || systemctl disable "${units[@]}" >/dev/null 2>&1 || true
    fi
}

remove_policy() {
    if [[ -f $POLICY && $(cat "$POLICY") == "$POLICY_TEXT" ]]; then rm -f "$POLICY"; fi
}
