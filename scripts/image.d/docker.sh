# shellcheck shell=bash
# Builds the image and tries it, where Docker can. Sourced by scripts/image.

image=hatchery-check

find_engine() {
  if ! timeout 15 docker info >/dev/null 2>&1; then
    not_checked "the image: no Docker engine answers"
    return 1
  elif ! docker buildx version >/dev/null 2>&1; then
    not_checked "the image: Docker's buildx is not installed"
    return 1
  fi
  local debian rust bases
  debian=$(sed -n 's/^ARG DEBIAN=//p' Dockerfile)
  rust=$(sed -n 's/^ARG RUST_VERSION=//p' Dockerfile)
  bases=("debian:$debian-slim")
  [ -n "${HATCHERY_BUILT:-}" ] || bases+=("rust:$rust-slim-$debian")
  can_be_had "${bases[@]}"
}

# can_be_had IMAGE…: succeeds if the engine has these images or can pull them.
can_be_had() {
  local one
  for one; do
    docker image inspect "$one" >/dev/null 2>&1 || timeout 120 docker pull --quiet "$one" >/dev/null 2>&1 ||
      { not_checked "what needs the image $one: it cannot be pulled"; return 1; }
  done
}

# build TARGET TAG
build() {
  local flags=(--load --tag "$2")
  [ -z "$1" ] || flags+=(--target "$1")
  if [ -n "${HATCHERY_BUILT:-}" ]; then
    # In place of the stage `build`.
    if ! [ -d "$scratch/build" ]; then
      install -D "$topology" "$scratch/build/out/usr/local/bin/topology"
      deploy/image/texts.sh "$scratch/build/out"
    fi
    flags+=(--build-context "build=$scratch/build")
  fi
  # shellcheck disable=SC2086 # Flags for a machine with a registry or a proxy of its own.
  docker buildx build "${flags[@]}" ${HATCHERY_BUILD_FLAGS:-} \
    --build-arg "VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)" \
    --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" .
}

build_image() {
  docker buildx build --check . || die 1 "docker build --check found something"
  build "" "$image"
}

try_image() {
  local bytes limit=40000000 names container first=hatchery-first-event-$$
  local run=(docker run --rm --network none --read-only --cap-drop ALL --security-opt no-new-privileges)
  "${run[@]}" "$image" --version
  "${run[@]}" --volume "$PWD:/work:ro" "$image" validate
  mkdir "$scratch/work"
  chmod 1777 "$scratch/work"
  scripts/image.d/first-event.sh "${run[*]} --name $first --volume $scratch/work:/work $image" \
    "docker exec $first /usr/local/bin/topology" "$scratch/first-event"
  [ "$(docker image inspect --format '{{.Config.User}}' "$image")" = 65532:65532 ] || die 1 "the image does not run as 65532"
  container=$(docker create "$image")
  names=$(docker export "$container" | tar t)
  docker rm "$container" >/dev/null
  for name in usr/local/share/man/man1/topology-work.1 usr/local/share/zsh/site-functions/_topology \
    usr/local/share/bash-completion/completions/topology usr/local/share/fish/vendor_completions.d/topology.fish \
    etc/ssl/certs/ca-certificates.crt var/lib/dpkg/status.d/libc6; do
    grep -qx "$name" <<<"$names" || die 1 "the image has no $name"
  done
  ! grep -E '(^|/)(sh|bash|dash|busybox|apt-get|dpkg)$' <<<"$names" || die 1 "the image has a shell or a package manager"
  bytes=$(docker image inspect --format '{{.Size}}' "$image")
  if [ -n "${HATCHERY_BUILT:-}" ]; then
    echo "the image has $bytes bytes, with a command that was not built for it"
  elif [ "$bytes" -ge $limit ]; then
    die 1 "the image has $bytes bytes, and should have less than $limit"
  else
    echo "the image has $bytes bytes"
  fi
}
