# shellcheck shell=bash
# Debian's packages of another release, unpacked into a folder. Read by scripts/brokers.

# Where apt gets Debian's own packages on this machine. Asked of apt itself, which needs no lists for it.
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

# Settings of apt's that leave the machine's proxy and certificates as they are, and nothing else.
write_apt_files() {
    local base=$1 mirror=$2 suite=$3 ring=$4
    mkdir -p "$base"/{etc,lists/partial,archives/partial}
    : >"$base/status"
    say "deb [signed-by=$ring] $mirror $suite main" >"$base/etc/sources.list"
    # The machine's own file is read in its place, then ours; what runs after an update is for the machine alone.
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

# unpack_release SUITE TREE SCRATCH: RabbitMQ of a release, with all that it needs, as if on a machine with nothing.
unpack_release() {
    local suite=$1 tree=$2 base=$3/apt mirror ring package
    mirror=$(mirror "$3") || die $EXIT_FAILED \
        "apt on this machine has no source of Debian's; HATCHERY_DEBIAN_MIRROR may name one"
    ring=$(keyring) || die $EXIT_MISSING "Debian's keys are missing; install the package debian-archive-keyring"
    write_apt_files "$base" "$mirror" "$suite" "$ring"
    note "Getting RabbitMQ of Debian $suite …"
    # An old list would name packages that are gone, so an update that fails is a failure.
    APT_CONFIG=$base/etc/first.conf apt-get -qq --error-on=any update >&2 || return 1
    APT_CONFIG=$base/etc/first.conf apt-get -qq --download-only install rabbitmq-server >&2 || return 1
    mkdir -p "$tree"
    for package in "$base"/archives/*.deb; do
        dpkg-deb --extract "$package" "$tree" || return 1
    done
    # Documentation, words of other languages and time zones.
    rm -rf -- "$tree/usr/share"
    say "Debian $suite" >"$tree/from"
}
