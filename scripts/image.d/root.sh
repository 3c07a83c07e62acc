# shellcheck shell=bash
# Tries the image's root without a Docker engine. Sourced by scripts/image.

# Sets `topology` to the command, which is built if need be.
find_topology() {
  local programs=${HATCHERY_BUILT:-}
  if [ -z "$programs" ]; then
    cargo build --locked -p hatchery-cli --bin topology
    programs=$(cargo metadata --locked --no-deps --format-version 1 | grep -o '"target_directory":"[^"]*"' | cut -d '"' -f 4)/debug
  fi
  topology=$programs/topology
}

# Assembles what the image has, and runs the command in it as the image does.
try_root() {
  local root=$scratch/root enter=(chroot --userspec=65532:65532 --groups=) count
  if [ "$(id -u)" != 0 ]; then enter=(unshare --map-root-user chroot); fi
  deploy/image/root.sh "$root" || { not_checked "the image's root: apt-get cannot download its packages"; return; }
  echo "the image's root without the command: $(du -sh --apparent-size "$root" | cut -f 1)"
  install -D "$topology" "$root/usr/local/bin/topology"
  deploy/image/texts.sh "$root"
  inside() { "${enter[@]}" "$root" /usr/local/bin/topology "$@"; }
  mkdir "$root/work"
  cp topology.yaml "$root/work/"
  inside --version
  inside validate -f /work/topology.yaml
  # Names are looked up by the libc of the root.
  echo "127.0.0.1 broker.example" >"$root/etc/hosts"
  grep -q "Connection refused" <(inside plan -f /work/topology.yaml --amqp-url amqp://broker.example:1 2>&1) ||
    die 1 "the command does not resolve a name in the image's root"
  count=$(grep -c "BEGIN CERTIFICATE" "$root/etc/ssl/certs/ca-certificates.crt")
  [ "$count" -gt 100 ] || die 1 "the image's root has only $count certificates"
  try_first_event
  rm -rf "$root"
}

# With a network of its own, where nothing but the loopback interface can be had.
try_first_event() {
  local apart=(unshare --net)
  if [ "$(id -u)" != 0 ]; then apart=(unshare --map-root-user --net); fi
  apart+=(env -i "PATH=$PATH:/usr/sbin" sh -c 'ip link set lo up && exec "$@"' sh)
  "${apart[@]}" true 2>/dev/null || { not_checked "topology dev in the image's root: no network of its own (unshare, ip)"; return; }
  rm "$root/work/topology.yaml"
  chmod 1777 "$root/work"
  local command="${enter[*]} $root /usr/local/bin/topology"
  "${apart[@]}" scripts/image.d/first-event.sh "$command" "$command" "$scratch/first-event"
}
