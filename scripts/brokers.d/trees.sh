# shellcheck shell=bash
# The folders that the packages are unpacked into, and how their programs start. Read by scripts/brokers.

readonly TREES=$ROOT/.services/brokers

# The tree of open_tree. It stays locked against removal while LOCK_FD is open.
TREE=
LOCK_FD=

# The version of RabbitMQ in a tree, by its own code; empty where there is none.
found_version() {
    local folder
    for folder in "$1"/usr/lib/rabbitmq/lib/rabbitmq_server-*; do
        if [[ -d $folder ]]; then say "${folder##*/rabbitmq_server-}"; fi
    done
}

from() { cat "$1/from"; }

# Whether a version found is of the line that was asked for.
is_of() {
    local found=$1 line=$2
    [[ -n $found ]] || return 1
    [[ $found == "$line".* ]] && return 0
    [[ $line == "$NEWEST" && $(printf '%s\n' "$line" "$found" | sort -V | head -n 1) == "$line" ]]
}

make_trees_dir() {
    # The same folder as that of scripts/services, with the same care.
    (umask 077 && mkdir -p "$ROOT/.services") && mkdir -p "$TREES" || die $EXIT_FAILED "can't make $TREES"
    [[ -w $TREES ]] || die $EXIT_FAILED "can't write in $TREES (another user's?)"
    [[ -f $ROOT/.services/.gitignore ]] || printf '*\n' >"$ROOT/.services/.gitignore"
}

# open_tree VERSION: its tree is there, of the right version, and locked against removal.
open_tree() {
    local version=$1
    make_trees_dir
    TREE=$TREES/$version
    exec {LOCK_FD}>"$TREES/$version.lock"
    while true; do
        flock -s -w 600 "$LOCK_FD" || die $EXIT_FAILED "another scripts/brokers is at work on $version"
        if is_of "$(found_version "$TREE")" "$version"; then return 0; fi
        flock -x -w 600 "$LOCK_FD" || die $EXIT_FAILED "another scripts/brokers is at work on $version"
        # Somebody else may have made it while we waited.
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

# Makes the tree, with the lock held: whole, or not at all.
make_tree() {
    local version=$1 suite scratch found
    local -a reasons=()
    local tool
    for tool in apt-get dpkg-deb; do
        command -v $tool >/dev/null || die $EXIT_MISSING \
            "there is no $tool: RabbitMQ $version is unpacked from Debian's packages, so this needs Debian or Ubuntu"
    done
    # What a killed one left.
    rm -rf -- "$TREES/$version" "$TREES/$version".new.*
    for suite in ${SUITES[$version]}; do
        # Should this be killed, the next try removes it.
        scratch=$(mktemp -d "$TREES/$version.new.XXXXXX")
            if unpack_release "$suite" "$scratch/tree" "$scratch"; then
            found=$(found_version "$scratch/tree")
            if is_of "$found" "$version"; then
                wrap_programs "$scratch/tree"
                mv -- "$scratch/tree" "$TREES/$version"
                rm -rf -- "$scratch"
                return 0
            fi
            reasons+=("Debian $suite has RabbitMQ ${found:-of no version}")
        else
            reasons+=("Debian $suite can't be had, see above")
        fi
        rm -rf -- "$scratch"
    done
    die $EXIT_FAILED "RabbitMQ $version can't be had:" "${reasons[@]}"
}

# Erlang's programs expect the loader and the C library of their own release in the machine's folders. In the place of
# each stands a script that names those of the tree. The scripts find the tree by their own place.
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
    # The start script of the package names the machine's folder.
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
