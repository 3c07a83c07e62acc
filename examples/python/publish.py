#!/usr/bin/env python3
"""Publishes an event to a hatchery topology, with no library but pika.

    publish.py mail --payload '{"to": "ann"}'                                  # at once
    publish.py mail --delay 5m --hatcheries 5s,5m,1h                           # through the hatchery of 5 minutes
    publish.py mail --delay 1300ms --ladder 250ms-27 --reference 1234          # through the ladder
    publish.py mail --at 2026-06-01T09:00:00Z --ladder 250ms-27

`topology validate -o json` prints the hatcheries and the ladder of a file. AMQP_URL is the broker's URL.
"""

import argparse
import json
import os
import sys
import uuid
from datetime import timedelta

import pika

import wire


def publish(channel, topology, event_type, body, *, reference=None, at=None, ms=0, hatcheries=(), ladder=None):
    """Publishes one event, due at this time or in `ms` milliseconds, and waits until the broker confirms it.

    The channel must be in confirm mode, so that pika raises if the broker does not confirm the event.
    """
    accepted = wire.now()
    headers = {"created_at": wire.time_text(accepted)}
    if at is not None:
        ms = wire.millis_until(at)
        headers["nbf"] = wire.time_text(at)
    elif ms:
        headers["nbf"] = wire.time_text(accepted + timedelta(milliseconds=ms))
    if reference is not None:
        headers["reference"] = reference
    key = wire.route(event_type, ms, hatcheries, ladder)
    properties = pika.BasicProperties(
        message_id=str(uuid.uuid4()),
        type=event_type,
        timestamp=int(accepted.timestamp()),
        content_type="application/json",
        delivery_mode=2,  # survives a restart of the broker
        headers=headers,
    )
    # Not mandatory: a message with a wrong key waits in `<topology>.unrouted`, where people see it.
    channel.basic_publish(f"{topology}.scheduler", key, body, properties)
    return {"id": properties.message_id, "key": key, "nbf": headers.get("nbf")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("type")
    parser.add_argument("--topology", default="billing")
    parser.add_argument("--payload", default="{}", help="or - for standard input")
    parser.add_argument("--reference")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--delay", type=wire.millis, default=0)
    when.add_argument("--at", type=wire.parse_time)
    parser.add_argument("--hatcheries", type=lambda text: text.split(","), default=[])
    parser.add_argument("--ladder", default="250ms-27")
    args = parser.parse_args()

    body = sys.stdin.buffer.read() if args.payload == "-" else args.payload.encode()
    url = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F")
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    published = publish(
        channel,
        args.topology,
        args.type,
        body,
        reference=args.reference,
        at=args.at,
        ms=args.delay,
        hatcheries=args.hatcheries,
        ladder=args.ladder,
    )
    connection.close()
    print(json.dumps(published))


if __name__ == "__main__":
    main()
