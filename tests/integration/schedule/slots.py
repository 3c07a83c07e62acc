"""Prints the instants of cron lines in time zones as JSON, as croniter computes them."""

import json
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

from croniter import croniter


def slots(line, zone, start, end):
    """Returns the seconds since 1970 of the line's instants from start to before end."""
    # croniter finds instants after its start.
    before = datetime.fromtimestamp(start, timezone.utc) - timedelta(seconds=1)
    instants = croniter(line, before.astimezone(zone))
    found = []
    while True:
        second = int(instants.get_next(datetime).timestamp())
        if second >= end:
            return found
        found.append(second)


order = json.loads(sys.argv[1])
json.dump(
    {
        name: {line: slots(line, ZoneInfo(name), order["start"], order["end"]) for line in order["lines"]}
        for name in order["zones"]
    },
    sys.stdout,
)
