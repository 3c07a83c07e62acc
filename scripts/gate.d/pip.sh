# shellcheck shell=bash
# Installs programs from PyPI into a folder of .services. Sourced by scripts/api, scripts/page, scripts/book and scripts/traces,
# after unpack.sh.

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
