# shellcheck shell=bash
# Gets packages without installing them on the machine: unpacks those of Debian, and installs those of PyPI into a folder of .services.
# Sourced by the scripts that need programs which few machines have.

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

# pip_install PINS FOLDER FLAG…: installs what the file PINS names, with its versions and hashes, and nothing that it needs.
# Fails with pip's reason.
pip_install() {
  local candidate pip=() pins=$1 folder=$2
  shift 2
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then pip=("$candidate" -m pip); fi
  done
  if [ ${#pip[@]} -eq 0 ]; then
    unpack python3-pip-whl .services/pip
    pip=(/usr/bin/python3 "$(echo .services/pip/usr/share/python-wheels/pip-*.whl)/pip")
  fi
  # scripts/services keeps secrets in the same folder.
  (umask 077 && mkdir -p .services)
  rm -rf "$folder"
  PIP_ROOT_USER_ACTION=ignore "${pip[@]}" install --quiet --disable-pip-version-check --target "$folder" --no-deps \
    --only-binary :all: --require-hashes --requirement "$pins" "$@"
}
