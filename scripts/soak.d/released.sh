# shellcheck shell=bash
# Builds the last release. Sourced by scripts/soak.

# build_released PROFILE: builds the commit that soak/released names, in a folder of its own in the target folder, and prints the
# path of its `topology`. Takes its dependencies from this tree's build, which has them already.
build_released() {
  local version commit target profile flags home built
  read -r version commit <soak/released
  if ! git cat-file -e "$commit^{commit}" 2>/dev/null; then
    echo "the commit $commit of the release $version (soak/released) is not in this clone; try \`git fetch --unshallow\`" >&2
    exit 1
  fi
  target=$(cargo metadata --locked --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d '"' -f 4)
  if [ -n "${HATCHERY_BUILT:-}" ]; then
    # The features of scripts/test. An example makes cargo use those of the tests' dependencies too, as scripts/test does.
    profile=dev flags=(--workspace --all-features --bin topology --example payroll)
  else
    profile=$1 flags=(-p hatchery-cli -p hatchery-soak --bin topology)
  fi
  home=$target/released/$commit-$profile
  built=$profile
  [ "$profile" != dev ] || built=debug
  if [ ! -d "$home/source" ]; then
    rm -rf "$home.new"
    mkdir -p "$home.new/source" "$home.new/target/$built"
    git archive "$commit" | tar -x -C "$home.new/source"
    link_dependencies "$target/$built" "$home.new/target/$built"
    mv "$home.new" "$home"
  fi
  echo "Building the release $version ($commit)" >&2
  CARGO_TARGET_DIR=$home/target cargo build --locked --profile "$profile" --quiet \
    --manifest-path "$home/source/Cargo.toml" "${flags[@]}"
  echo "$home/target/$built/topology"
}

# link_dependencies FROM TO: gives a folder of cargo hard links to what another one has built, but for the packages of this
# workspace: cargo would write the release's over them.
link_dependencies() {
  local part name own
  # The names of packages, and those of their targets.
  own=$(cargo metadata --locked --no-deps --format-version 1 |
    grep -oE '("crate_types":\[[^]]*\],"name":"[^"]*")|("name":"[^"]*","version")' | grep -oE '"name":"[^"]*"' | cut -d '"' -f 4 | sort -u)
  for part in .fingerprint build deps; do
    [ -d "$1/$part" ] || continue
    cp -al "$1/$part" "$2/$part"
    for name in $own; do
      find "$2/$part" -maxdepth 1 \( -name "$name-*" -o -name "${name//-/_}-*" -o -name "lib${name//-/_}-*" \) -exec rm -rf {} +
    done
  done
}
