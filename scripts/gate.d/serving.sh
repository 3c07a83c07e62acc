# shellcheck shell=bash
# Runs tests in Python against `topology serve`. Sourced by scripts/api and scripts/page, after packages.sh.

# install_pins PINS FOLDER NAME SIZE: installs packages from PyPI, unless the folder has them. Exits with 6 if that fails.
install_pins() {
  cmp -s "$1" "$2/pins.txt" && return
  [ -n "$yes" ] || ask "Install $3 ($4) into $2?" "$3 is missing: run this in a terminal"
  pip_install "$1" "$2" || { echo "pip cannot install $3, so NOTHING IS CHECKED" >&2; exit 6; }
  cp "$1" "$2/pins.txt"
}

# run_tests FOLDER PACKAGES TEST…: runs the tests of a folder, or these alone, with the packages of a folder of .services.
run_tests() {
  local folder=$1 packages=$2
  shift 2
  if [ -z "${HATCHERY_BUILT:-}" ]; then
    cargo build --locked -p hatchery-cli
    HATCHERY_BUILT=$(cargo metadata --locked --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d '"' -f 4)/debug
  fi
  [ -z "$yes" ] || export CI=true
  export HATCHERY_BUILT PYTHONPATH=$PWD/$packages:$PWD/tests/support PYTHONDONTWRITEBYTECODE=1
  cd "$folder"
  if [ $# -eq 0 ]; then set -- discover; fi
  exec python3 -m unittest "$@" -v
}
