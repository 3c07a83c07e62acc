# shellcheck shell=bash
# Unpacks Debian packages without installing them. Sourced by scripts/observability and scripts/traces.

# ask QUESTION HINT: asks whether to go on. Without a terminal it prints the hint and exits with 6.
ask() {
  local answer
  [ -t 0 ] || { echo "$2, or pass --yes" >&2; exit 6; }
  read -r -p "$1 [y/N] " answer
  [ "$answer" = y ] || exit 6
}

# unpack PACKAGE FOLDER: downloads a Debian package and unpacks it into a folder.
unpack() {
  local scratch
  scratch=$(mktemp -d)
  download() { (cd "$scratch" && apt-get -qq -o APT::Sandbox::User=root download "$1"); }
  # The machine may have no package lists yet.
  download "$1" 2>/dev/null || { apt-get -qq update && download "$1"; } ||
    { echo "apt-get cannot download the package $1; install it" >&2; exit 6; }
  # scripts/services keeps secrets in the same folder.
  (umask 077 && mkdir -p .services)
  mkdir -p "$2"
  dpkg -x "$scratch/$1"_*.deb "$2"
  rm -rf "$scratch"
}
