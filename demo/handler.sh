#!/bin/sh
# What the demo's workers run for each event: it pretends to do something, and writes one line about it.
# The payload says whether it fails: {"fail":"twice"}, {"fail":"always"} or {"fail":"invalid"}.
set -u

# The dot keeps line ends, which $(…) would take off.
payload=$(cat && echo .) || exit 1
payload=${payload%.}

outcome='done'
case $payload in
*'"fail":"twice"'*) [ "$EVENT_ATTEMPTS" -ge 2 ] || outcome=failed ;;
*'"fail":"always"'*) outcome=failed ;;
*'"fail":"invalid"'*) outcome=dead ;;
esac

# The work itself, long enough for `kill -9` to hit somebody at it.
sleep 0.1

checksum=$(printf %s "$payload" | cksum)
# One short line in one write, so that many handlers can share the file.
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
