#!/bin/sh
# Writes the completions and manual pages of `topology` into a folder that has the command: `texts.sh FOLDER`
set -eu

topology=$1/usr/local/bin/topology
share=$1/usr/local/share
mkdir -p "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d" "$share/man/man1"
"$topology" completions bash >"$share/bash-completion/completions/topology"
"$topology" completions zsh >"$share/zsh/site-functions/_topology"
"$topology" completions fish >"$share/fish/vendor_completions.d/topology.fish"
"$topology" man --out "$share/man/man1"
