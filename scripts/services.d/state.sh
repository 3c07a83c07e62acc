# shellcheck shell=bash
# What is remembered between two calls. Read by scripts/services.

DIR=
HOLD=no
# What is remembered between two calls, as lines KEY=VALUE in DIR/state. Kept after down, so that ports stay the same.
declare -A STATE=()

load_state() {
    STATE=()
    local key value
    [[ -f $DIR/state ]] || return 0
    while IFS='=' read -r key value; do
        [[ $key =~ ^[a-z_]+$ ]] && STATE[$key]=$value
    done <"$DIR/state"
    return 0
}

save_state() {
    local key
    for key in "${!STATE[@]}"; do printf '%s=%s\n' "$key" "${STATE[$key]}"; done | sort >"$DIR/state.new"
    mv -f "$DIR/state.new" "$DIR/state"
}

make_dir() {
    # Nothing in here is for others' eyes (the cookie opens the node), nor for git's.
    (umask 077 && mkdir -p "$DIR") || die $EXIT_FAILED "can't make $DIR; --dir chooses another folder"
    [[ -w $DIR ]] || die $EXIT_FAILED "can't write in $DIR (another user's?); --dir chooses another folder"
    [[ -f $DIR/.gitignore ]] || printf '*\n' >"$DIR/.gitignore"
}

# One up or down at a time in one folder.
lock_dir() {
    exec {LOCK_FD}>"$DIR/lock" || die $EXIT_FAILED "can't write $DIR/lock (another user's?); --dir chooses another folder"
    flock -w 300 "$LOCK_FD" || die $EXIT_FAILED "another scripts/services is at work in $DIR"
}
