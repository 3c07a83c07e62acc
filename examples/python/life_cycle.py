#!/usr/bin/env python3
"""Prints what has happened to events, one JSON record a line, with no library but pika.

    life_cycle.py                                # all that the stream has
    life_cycle.py --since-hours 1 --follow       # those of the last hour, then new ones
    life_cycle.py --reference 1234               # those of its events; RabbitMQ 3.13 and later filters them

Without --follow it ends when no record has come for ten seconds.

AMQP_URL is the broker's URL.
"""

import argparse
import json
import os
from datetime import datetime, timedelta, timezone

import pika


def records(channel, stream, *, since=None, reference=None, quiet=None):
    """Returns the records one by one, until none has come for `quiet` seconds."""
    # RabbitMQ requires a prefetch for a stream. A stream keeps its messages, so the consumer chooses where to begin.
    channel.basic_qos(prefetch_count=500)
    arguments = {"x-stream-offset": since or "first"}
    if reference is not None:
        arguments["x-stream-filter"] = reference
        # Messages with records of several events have no filter value.
        arguments["x-stream-match-unfiltered"] = True
    for method, _, body in channel.consume(stream, arguments=arguments, inactivity_timeout=quiet):
        if method is None:
            return
        channel.basic_ack(method.delivery_tag)
        # RabbitMQ delivers whole chunks: some records are older, and some of another reference.
        for record in map(json.loads, body.splitlines()):
            is_new = since is None or datetime.fromisoformat(record["at"].replace("Z", "+00:00")) >= since
            if is_new and (reference is None or record.get("reference") == reference):
                yield record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="billing")
    parser.add_argument("--since-hours", type=float)
    parser.add_argument("--reference")
    parser.add_argument("--follow", action="store_true")
    args = parser.parse_args()
    hours = args.since_hours
    since = None if hours is None else datetime.now(timezone.utc) - timedelta(hours=hours)
    connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
    stream = f"{args.topology}.life-cycle"
    quiet = None if args.follow else 10
    for record in records(connection.channel(), stream, since=since, reference=args.reference, quiet=quiet):
        print(json.dumps(record), flush=True)
    connection.close()


if __name__ == "__main__":
    main()
