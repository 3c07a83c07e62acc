# shellcheck shell=bash
# Makes the folders that the packages are unpacked into, and the wrappers that start their programs. Sourced by
# scripts/brokers.

readonly TREES=$ROOT/.services/brokers

# The folder that open_tree has opened. Nobody can remove it while LOCK_FD is open.
TREE=
LOCK_FD=

# Prints the version of RabbitMQ in a tree, read from the name of its own folder; nothing if there is none.
found_version() {
    local folder
    for folder in "$1"/usr/lib/rabbitmq/lib/rabbitmq_server-*; do
        if [[ -d $folder ]]; then say "${folder##*/rabbitmq_server-}"; fi
    done
}

from() { cat "$1/from"; }

# Succeeds if the version that was found belongs to the version that was asked for, as 4.0.5 does to 4.0.
is_of() {
    local found=$1 line=$2
    [[ -n $found ]] || return 1
    [[ $found == "$line".* ]] && return 0
    [[ $line == "$NEWEST" && $(printf '%s\n' "$line" "$found" | sort -V | head -n 1) == "$line" ]]
}

make_trees_dir() {
    # The folder of scripts/services, with the same permissions: it holds secrets.
    (umask 077 && mkdir -p "$ROOT/.services") && mkdir -p "$TREES" || die $EXIT_FAILED "can't make $TREES"
    [[ -w $TREES ]] || die $EXIT_FAILED "can't write in $TREES (another user's?)"
    [[ -f $ROOT/.services/.gitignore ]] || printf '*\n' >"$ROOT/.services/.gitignore"
}

# open_tree VERSION: makes the tree of this version if it is missing, and locks it against removal.
open_tree() {
    local version=$1
    make_trees_dir
    TREE=$TREES/$version
    exec {LOCK_FD}>"$TREES/$version.lock"
    while true; do
        flock -s -w 600 "$LOCK_FD" || die $EXIT_FAILED "another scripts/brokers is at work on $version"
        if is_of "$(found_version "$TREE")" "$version"; then return 0; fi
        flock -x -w 600 "$LOCK_FD" || die $EXIT_FAILED "another scripts/brokers is at work on $version"
        # Another process may have made it while this one waited for the lock.
        is_of "$(found_version "$TREE")" "$version" || make_tree "$version"
    done
}

close_tree() { exec {LOCK_FD}>&-; }

remove_tree() {
    local version=$1
    make_trees_dir
    exec {LOCK_FD}>"$TREES/$version.lock"
    flock -x -n "$LOCK_FD" || die $EXIT_FAILED "RabbitMQ $version is in use"
    rm -rf -- "${TREES:?}/$version"
    close_tree
}

# Makes the tree, with the lock held. The tree is made whole or not at all.
make_tree() {
    local version=$1 suite scratch found
    local -a reasons=()
    local tool
    for tool in apt-get dpkg-deb; do
        command -v $tool >/dev/null || die $EXIT_MISSING \
            "$tool is not installed: RabbitMQ $version is unpacked from Debian's packages, so this needs Debian or Ubuntu"
    done
    # Remove the folders of a killed run.
    rm -rf -- "$TREES/$version" "$TREES/$version".new.*
    for suite in ${SUITES[$version]}; do
        # If this run is killed, the next one removes the folder.
        scratch=$(mktemp -d "$TREES/$version.new.XXXXXX")
            if unpack_release "$suite" "$scratch/tree" "$scratch"; then
            found=$(found_version "$scratch/tree")
            if is_of "$found" "$version"; then
                wrap_programs "$scratch/tree"
                mv -- "$scratch/tree" "$TREES/$version"
                rm -rf -- "$scratch"
                return 0
            fi
            reasons+=("Debian $suite has RabbitMQ ${found:-of an unknown version}")
        else
            reasons+=("the packages of Debian $suite are not available, see above")
        fi
        rm -rf -- "$scratch"
    done
    die $EXIT_FAILED "RabbitMQ $version is not available:" "${reasons[@]}"
}

# Erlang's programs expect the loader and the C library of their own release in the machine's folders. Each program is
# replaced by a script that starts it with those of the tree. A script finds the tree from its own path.
wrap_programs() {
    local tree=$1 program name up
    for program in "$tree"/usr/lib/erlang/{bin,erts-*/bin,lib/*/bin,lib/*/priv/bin}/*; do
        [[ -f $program && ! -L $program && -x $program && $(head -c 4 "$program") == $'\x7fELF' ]] || continue
        name=${program##*/}
        up=$(realpath --relative-to="${program%/*}" "$tree")
        mv -- "$program" "$program.elf"
        cat >"$program" <<SHIM
#!/bin/sh
here=\$(dirname "\$(readlink -f "\$0")")
tree=\$here/$up
for loader in "\$tree"/lib/*-linux-*/ld-linux*.so.* "\$tree"/usr/lib/*-linux-*/ld-linux*.so.*; do
    if [ -e "\$loader" ]; then break; fi
done
folder=\${loader%/*}
exec "\$loader" --argv0 "\$0" --library-path "\$folder:\$tree/usr/lib/\${folder##*/}" "\$here/$name.elf" "\$@"
SHIM
        chmod 755 "$program"
    done
    # The package's start script has the path of the machine's own folder, so it is replaced.
    for program in "$tree"/usr/lib/erlang/bin/erl "$tree"/usr/lib/erlang/erts-*/bin/erl; do
        rm -f -- "$program"
        cat >"$program" <<'SHIM'
#!/bin/sh
here=$(readlink -f "$0")
ROOTDIR=${here%/erlang/*}/erlang
for BINDIR in "$ROOTDIR"/erts-*/bin; do :; done
EMU=beam
PROGNAME=erl
export ROOTDIR BINDIR EMU PROGNAME
exec "$BINDIR/erlexec" "$@"
SHIM
        chmod 755 "$program"
    done
}
