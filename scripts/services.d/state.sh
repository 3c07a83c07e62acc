# shellcheck shell=bash
# Remembers values between two calls. Sourced by scripts/services.

DIR=
HOLD=no
# The remembered values, kept as lines KEY=VALUE in DIR/state. `down` keeps the file, so that ports stay the same.
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
    # The cookie gives access to the node, so other users must not read the folder; git must ignore it.
    (umask 077 && mkdir -p "$DIR") || die $EXIT_FAILED "can't make $DIR; --dir chooses another folder"
    [[ -w $DIR ]] || die $EXIT_FAILED "can't write in $DIR (another user's?); --dir chooses another folder"
    [[ -f $DIR/.gitignore ]] || printf '*\n' >"$DIR/.gitignore"
}

# Locks the folder, so that only one `up` or `down` runs in it at a time.
lock_dir() {
    exec {LOCK_FD}>"$DIR/lock" || die $EXIT_FAILED "can't write $DIR/lock (another user's?); --dir chooses another folder"
    flock -w 300 "$LOCK_FD" || die $EXIT_FAILED "another scripts/services is at work in $DIR"
}
