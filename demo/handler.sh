#!/bin/sh
# The program that the demo's workers run for each event. It pretends to work, and writes one line about the run.
# The payload sets whether the run fails: {"fail":"twice"}, {"fail":"always"} or {"fail":"invalid"}.
set -u

# The dot keeps trailing newlines, which $(…) would remove.
payload=$(cat && echo .) || exit 1
payload=${payload%.}

outcome='done'
case $payload in
*'"fail":"twice"'*) [ "$EVENT_ATTEMPTS" -ge 2 ] || outcome=failed ;;
*'"fail":"always"'*) outcome=failed ;;
*'"fail":"invalid"'*) outcome=dead ;;
esac

# The work takes long enough for `kill -9` to hit a running handler.
sleep 0.1

checksum=$(printf %s "$payload" | cksum)
# A short line is one write, so many handlers can append to the file at a time.
printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$EVENT_ID" "$EVENT_TYPE" "${EVENT_REFERENCE:--}" "$EVENT_ATTEMPTS" \
    "$EVENT_FENCE" "$outcome" "${checksum%% *}" "$DEMO_WORKER" >>"$DEMO_OUT" || exit 1

case $outcome in
failed)
    echo "the payroll system did not answer" >&2
    exit 1
    ;;
dead)
    echo "no such employee" >&2
    exit 65
    ;;
esac
