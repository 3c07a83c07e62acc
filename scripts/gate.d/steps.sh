# shellcheck shell=bash
# Prints the names and times of steps. Sourced by scripts/check and scripts/test.

STEPS=()
BEGAN=()

# step NAME…: begins a step, and ends the one before.
step() {
  STEPS+=("$*")
  BEGAN+=("$SECONDS")
  printf '\n== %s (after %s)\n' "$*" "$(minutes "$SECONDS")"
}

minutes() { printf '%d:%02d min' $(($1 / 60)) $(($1 % 60)); }

# Prints the time of each step. Call it after the last step.
done_in_all() {
  local n
  printf '\nAll checks passed.\n\n'
  BEGAN+=("$SECONDS")
  for n in "${!STEPS[@]}"; do
    printf '%9s  %s\n' "$(minutes $((BEGAN[n + 1] - BEGAN[n])))" "${STEPS[n]}"
  done
  printf '%9s  in all\n' "$(minutes "$SECONDS")"
}

# have COMMAND COMPONENT: succeeds if the toolchain has this cargo command. Reports a missing one, so that the other steps
# can still run.
have() {
  cargo "$1" --version >/dev/null 2>&1 && return
  printf 'NOT CHECKED: cargo %s is not installed (rustup component add %s)\n' "$1" "$2"
  return 1
}

# beside NAME COMMAND…: begins a command that runs beside others, and puts its name before each of its lines.
beside() {
  local name=$1
  shift
  # Of a pipeline without the parentheses, bash would forget how its first command ended.
  ("$@" 2>&1 | sed -u "s/^/$name | /") &
  BESIDE+=("$!" "$name")
}
BESIDE=()

# all_end_well: waits for what runs beside. Exits with 1 and names what failed.
all_end_well() {
  local failed=() n
  for ((n = 0; n < ${#BESIDE[@]}; n += 2)); do
    wait "${BESIDE[n]}" || failed+=("${BESIDE[n + 1]}")
  done
  BESIDE=()
  [ ${#failed[@]} -eq 0 ] && return
  printf 'failed: %s\n' "${failed[@]}" >&2
  exit 1
}
