# shellcheck shell=bash
# Names and times the steps of a gate. Read by scripts/check and scripts/test.

STEPS=()
BEGAN=()

# step NAME…: the step before this one is over.
step() {
  STEPS+=("$*")
  BEGAN+=("$SECONDS")
  printf '\n== %s (after %s)\n' "$*" "$(minutes "$SECONDS")"
}

minutes() { printf '%d:%02d min' $(($1 / 60)) $(($1 % 60)); }

# The time of each step, once the last one is over.
done_in_all() {
  local n
  printf '\nEverything holds.\n\n'
  BEGAN+=("$SECONDS")
  for n in "${!STEPS[@]}"; do
    printf '%9s  %s\n' "$(minutes $((BEGAN[n + 1] - BEGAN[n])))" "${STEPS[n]}"
  done
  printf '%9s  in all\n' "$(minutes "$SECONDS")"
}

# A toolchain may come without these. A missing one is reported, and the other steps run all the same.
have() {
  cargo "$1" --version >/dev/null 2>&1 && return
  printf 'NOT CHECKED: cargo %s is not installed (rustup component add %s)\n' "$1" "$2"
  return 1
}

# all_end_well NAME PID…: waits for processes, each with its name.
all_end_well() {
  local failed=()
  while [ $# -gt 0 ]; do
    wait "$2" || failed+=("$1")
    shift 2
  done
  [ ${#failed[@]} -eq 0 ] && return
  echo "failed: ${failed[*]}" >&2
  exit 1
}
