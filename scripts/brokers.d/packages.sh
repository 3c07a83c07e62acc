# shellcheck shell=bash
# Downloads Debian's packages of another release, and unpacks them into a folder. Sourced by scripts/brokers.

# Prints the mirror from which apt gets Debian's packages on this machine. apt itself prints it, without package lists.
mirror() {
    if [[ -n ${HATCHERY_DEBIAN_MIRROR:-} ]]; then
        say "${HATCHERY_DEBIAN_MIRROR%/}"
        return 0
    fi
    local lists=$1/none uri
    mkdir -p "$lists"
    uri=$(apt-get -o Dir::State::lists="$lists" -o Debug::NoLocking=true --print-uris update 2>/dev/null |
        sed -nE "s#^'([^']*/debian)/dists/.*#\1#p" | head -n 1) || true
    [[ -n $uri ]] || return 1
    say "$uri"
}

keyring() {
    local ring
    for ring in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
        if [[ -r $ring ]]; then
            say "$ring"
            return 0
        fi
    done
    return 1
}

# Writes settings for apt that keep only the machine's proxy and certificates.
write_apt_files() {
    local base=$1 mirror=$2 suite=$3 ring=$4
    mkdir -p "$base"/{etc,lists/partial,archives/partial}
    : >"$base/status"
    say "deb [signed-by=$ring] $mirror $suite main" >"$base/etc/sources.list"
    # apt reads the machine's own file first, then ours. Hooks that run after an update of the machine are cleared.
    say "Dir::Etc::main \"$base/etc/apt.conf\";" >"$base/etc/first.conf"
    {
        if [[ -r /etc/apt/apt.conf ]]; then say '#include /etc/apt/apt.conf;'; fi
        cat <<CONF
#clear APT::Update;
#clear DPkg;
#clear Acquire::IndexTargets::deb::DEP-11;
Dir::State "$base";
Dir::State::lists "$base/lists";
Dir::State::status "$base/status";
Dir::Cache "$base";
Dir::Cache::archives "$base/archives";
Dir::Etc::sourcelist "$base/etc/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::trustedparts "/dev/null";
APT::Install-Recommends "false";
APT::Sandbox::User "";
APT::Get::Assume-Yes "true";
Acquire::Languages "none";
CONF
    } >"$base/etc/apt.conf"
}

# unpack_release SUITE TREE SCRATCH: unpacks RabbitMQ of a release with all packages that it needs, as if none were
# installed.
unpack_release() {
    local suite=$1 tree=$2 base=$3/apt mirror ring package
    mirror=$(mirror "$3") || die $EXIT_FAILED \
        "apt on this machine has no Debian mirror; set HATCHERY_DEBIAN_MIRROR to one"
    ring=$(keyring) || die $EXIT_MISSING "Debian's keys are missing; install the package debian-archive-keyring"
    write_apt_files "$base" "$mirror" "$suite" "$ring"
    note "Getting RabbitMQ of Debian $suite …"
    # Any failed download of a list is an error, because an old list would name packages that no longer exist.
    APT_CONFIG=$base/etc/first.conf apt-get -qq --error-on=any update >&2 || return 1
    APT_CONFIG=$base/etc/first.conf apt-get -qq --download-only install rabbitmq-server >&2 || return 1
    mkdir -p "$tree"
    for package in "$base"/archives/*.deb; do
        dpkg-deb --extract "$package" "$tree" || return 1
    done
    # Documentation, translations and time zones, which are not needed.
    rm -rf -- "$tree/usr/share"
    say "Debian $suite" >"$tree/from"
}
