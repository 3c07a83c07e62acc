#!/bin/sh
# Fills a folder with the root of the image: what `topology` needs beside itself, from Debian's packages. `root.sh FOLDER`
set -eu

root=$1
# base-files has /etc/os-release, by which a scanner knows the release.
packages="base-files ca-certificates libc6 libgcc-s1"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$root"

# The newest versions of the release, with its security updates.
download() (
  cd "$scratch"
  # libgcc-s1 has its copyright in the package gcc-N-base of its version.
  base=$(apt-cache depends libgcc-s1 | sed -n 's/.*Depends: \(gcc-[0-9]*-base\)$/\1/p')
  # shellcheck disable=SC2086 # A list of names.
  apt-get -qq -o APT::Sandbox::User=root download $packages $base
)
download 2>/dev/null || { apt-get -qq update && download; }

# As in Google's distroless images, each package has a file of its own in status.d: a package manager needs one database,
# and scanners read both.
mkdir -p "$root/var/lib/dpkg/status.d" "$root/usr/share/doc"
for file in "$scratch"/*.deb; do
  package=$(dpkg-deb -f "$file" Package)
  dpkg-deb -x "$file" "$scratch/tree"
  dpkg-deb -f "$file" >"$root/var/lib/dpkg/status.d/$package"
  dpkg-deb --ctrl-tarfile "$file" | tar -xO ./md5sums >"$root/var/lib/dpkg/status.d/$package.md5sums"
done
tree=$scratch/tree
for folder in "$tree/usr/share/doc"/*; do
  doc=$root/usr/share/doc/${folder##*/}
  if [ -L "$folder" ]; then cp -a "$folder" "$doc"; else mkdir "$doc" && cp "$folder/copyright" "$doc/"; fi
done

# The dynamic linker and the libraries, in the folders in which the package has them, and not the tables of iconv.
find "$tree" -name gconv -prune -exec rm -r {} +
for folder in lib lib64 usr/lib; do
  if [ -d "$tree/$folder" ]; then mkdir -p "$root/$folder" && cp -a "$tree/$folder/." "$root/$folder/"; fi
done
mkdir -p "$root/etc/ssl/certs"
cp -a "$tree/etc/debian_version" "$tree/etc/os-release" "$root/etc/"
# The bundle of certificates that update-ca-certificates makes of the package.
find "$tree/usr/share/ca-certificates" -name '*.crt' | sort | xargs sed -n p >"$root/etc/ssl/certs/ca-certificates.crt"

cat >"$root/etc/passwd" <<'TXT'
root:x:0:0:root:/root:/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin
nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin
TXT
cat >"$root/etc/group" <<'TXT'
root:x:0:
nobody:x:65534:
nonroot:x:65532:
TXT
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
mkdir -p "$root/tmp" "$root/home/nonroot"
chmod 1777 "$root/tmp"
chmod 700 "$root/home/nonroot"
[ "$(id -u)" != 0 ] || chown 65532:65532 "$root/home/nonroot"
