# shellcheck shell=bash
# Installs Debian and Ubuntu packages. Sourced by scripts/services.

missing_packages() {
    if [[ $WANT_RABBITMQ == yes ]] && ! [[ -x $RABBITMQ_BIN/rabbitmq-server && -n $(PATH=$SYSTEM_PATH command -v erl) &&
        -n $(PATH=$SYSTEM_PATH command -v epmd) ]]; then
        say rabbitmq-server
    fi
    if [[ $WANT_REDIS == yes && -z $(PATH=$SYSTEM_PATH command -v redis-server) ]]; then say redis-server; fi
    # Rust links with `cc`, and some crates contain C code.
    if [[ $WANT_BUILD == yes ]] && ! { command -v cc >/dev/null && has_libc_headers; }; then printf '%s\n' gcc libc6-dev; fi
    if [[ $WANT_PYTHON == yes ]] && ! has_pika; then say python3-pika; fi
    if [[ $WANT_PYTHON == yes ]] && ! command -v node >/dev/null; then say nodejs; fi
    if [[ $WANT_PYTHON == yes ]] && ! has_croniter && ! find_pip; then say python3-pip-whl; fi
    # For workers with a wrong clock.
    if [[ $WANT_PYTHON == yes ]] && ! command -v faketime >/dev/null; then say faketime; fi
}

# The first python3 on the PATH may be the user's own, which does not see Debian's packages; so the system's is tried too.
has_pika() {
    local python
    for python in python3 /usr/bin/python3; do "$python" -c 'import pika' 2>/dev/null && return; done
    return 1
}

# Croniter is in a folder of its own, because each Debian has another version, and another version may have other instants.
readonly CRONITER_PINS=$ROOT/scripts/services.d/croniter.txt CRONITER_DIR=$ROOT/.services/python

has_croniter() { cmp -s "$CRONITER_PINS" "$CRONITER_DIR/pins.txt"; }

# Sets PIP to the command of a pip.
PIP=()
find_pip() {
    local python wheel
    for python in python3 /usr/bin/python3; do
        PIP=("$python" -m pip)
        if "${PIP[@]}" --version >/dev/null 2>&1; then return; fi
    done
    # Debian's package python3-pip-whl.
    for wheel in /usr/share/python-wheels/pip-*.whl; do
        PIP=(/usr/bin/python3 "$wheel/pip")
        if [[ -f $wheel ]]; then return; fi
    done
    return 1
}

# Installs croniter from PyPI. All its output goes to standard error.
ensure_croniter() {
    if has_croniter; then return; fi
    may_install "croniter" "with pip into .services/python"
    find_pip || die $EXIT_MISSING "there is no pip, which installs croniter; install the package python3-pip"
    note "Installing croniter with pip into $CRONITER_DIR."
    # scripts/services keeps secrets in the folder above.
    (umask 077 && mkdir -p "$ROOT/.services")
    rm -rf "$CRONITER_DIR"
    PIP_ROOT_USER_ACTION=ignore "${PIP[@]}" install --quiet --disable-pip-version-check --target "$CRONITER_DIR" --no-deps \
        --only-binary :all: --require-hashes --requirement "$CRONITER_PINS" </dev/null >&2 ||
        die $EXIT_FAILED "pip could not install croniter; its reason is above"
    cp "$CRONITER_PINS" "$CRONITER_DIR/pins.txt"
    # With sudo the files would belong to root.
    if ((EUID == 0)); then chown --reference="$ROOT" "$ROOT/.services" && chown -R --reference="$ROOT" "$CRONITER_DIR"; fi
}

has_libc_headers() { cc -E -include stdlib.h -x c /dev/null >/dev/null 2>&1; }

# Prints the flags of `install` for the same packages.
install_flags() {
    case $WANT_RABBITMQ$WANT_REDIS in
    yesno) say --rabbitmq-only ;;
    noyes) say --redis-only ;;
    nono) say --build-only ;;
    esac
    if [[ $WANT_RABBITMQ$WANT_REDIS == *yes* && $WANT_BUILD == yes ]]; then say --build; fi
    if [[ $WANT_PYTHON == yes ]]; then say --python; fi
}

# Prints the command line that the user has to type.
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
    die $EXIT_MISSING "$@" "to install them (without starting their services), type:" "  $(install_line)"
}

# may_install WHAT HOW: asks whether to install it, unless --yes or CI=true has answered already.
may_install() {
    local answer
    if [[ $YES != yes && ${CI:-} != true ]]; then
        [[ -t 0 && -t 2 ]] || missing "not installed: $1"
        read -r -p "Not installed: $1. Install $2 now? [y/N] " answer || answer=
        [[ $answer == [yY] || $answer == [yY][eE][sS] ]] || missing "not installed: $1"
    fi
}

# Installs missing packages. All its output goes to standard error.
ensure_packages() {
    local -a packages
    mapfile -t packages < <(missing_packages)
    ((${#packages[@]})) || return 0
    command -v apt-get >/dev/null || die $EXIT_MISSING \
        "not found: ${packages[*]}; this is neither Debian nor Ubuntu, so they can't be installed from here." \
        "If a C compiler, Node or Python's pika (python3 -m pip install pika) is missing, install it yourself." \
        "For RabbitMQ and Redis, start Docker, install them yourself, or set AMQP_URL and REDIS_URL to servers to use."
    may_install "${packages[*]}" "with apt-get"
    if ((EUID != 0)); then
        command -v sudo >/dev/null || missing "not installed: ${packages[*]}; that needs root, and there is no sudo"
        local -a sudo=(sudo)
        local -a flags
        mapfile -t flags < <(install_flags)
        [[ -t 0 ]] || sudo+=(-n)
        "${sudo[@]}" -- "$(readlink -f -- "$SELF")" install --yes "${flags[@]}" >&2 || missing "could not install: ${packages[*]}"
    else
        # In a subshell, so that its traps do not replace ours.
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
    # Only one installation runs at a time. After the wait the packages may be installed already, so check again.
    if [[ -d /var/lib/apt/lists ]]; then
        exec {APT_FD}</var/lib/apt/lists
        flock -w 600 "$APT_FD" || true
    fi
    mapfile -t packages < <(missing_packages)
    ((${#packages[@]})) || return 0
    local erlang=yes
    command -v epmd >/dev/null || erlang=no
    note "Installing ${packages[*]} with apt-get, without starting their services."
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
    # The packages also enable their services for the next boot, which the user did not ask for.
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
