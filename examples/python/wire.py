"""The part of hatchery's wire format that a producer and a consumer need: pure functions, no AMQP client.

`docs/wire-format.md` describes the same.
"""

import re
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}

# Headers that RabbitMQ writes or acts upon. A copy with them would be routed twice, or taken for a dead-letter cycle.
BROKERS_OWN = re.compile(r"CC|BCC|x-death|x-(first|last)-death-.*|x-delivery-count|x-acquired-count")

# The most bytes of `reason`, which people read in lists of the management UI.
REASON_LIMIT = 1_000


class DeadLetter(Exception):
    """A handler raises this for an event that can never work."""


class Poison(Exception):
    """The message cannot be decoded as an event. It goes to dead-letter unchanged, with the reason."""


# --- Delays -----------------------------------------------------------------------------------------------------------


def millis(text):
    """Returns `1300ms`, `90s`, `5m`, `1h` or `30d` in milliseconds."""
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    if not match:
        raise ValueError(f"{text!r} is not a number and a unit, like 250ms or 5m")
    return int(match[1]) * UNITS[match[2]]


def ttl_name(ms):
    """Returns the name of a TTL: its length in the largest unit that divides it exactly, `90s` and not `1m30s`."""
    unit = next(unit for unit, length in UNITS.items() if ms % length == 0)
    return f"{ms // UNITS[unit]}{unit}"


def ladder_key(event_type, ms, ladder):
    """Returns the routing key of a delay through a ladder such as `250ms-27`: 250 ms a step, 27 levels.

    The key holds the number of steps in binary, a word for each bit, the least significant bit first, and as many bits as
    there are levels. The number is rounded up, so that no event is early. A delay of more steps than fit gets a one in
    all bits: the worker then sends the event through the ladder again, by its `nbf`.
    """
    resolution, levels = ladder.rsplit("-", 1)
    resolution, levels = millis(resolution), int(levels)
    steps = min(-(-ms // resolution), 2**levels - 1)
    return ".".join([event_type, ladder, *reversed(format(steps, f"0{levels}b"))])


def route(event_type, ms, hatcheries, ladder):
    """Returns the routing key for a delay: at once, a hatchery that is exactly as long, or the ladder."""
    if ms <= 0:
        return f"{event_type}.now"
    if ms in map(millis, hatcheries):
        return f"{event_type}.{ttl_name(ms)}"
    return ladder_key(event_type, ms, ladder)


# --- Times ------------------------------------------------------------------------------------------------------------


def now():
    return datetime.now(timezone.utc)


def time_text(time):
    """Returns a time as in headers: RFC 3339, UTC, milliseconds. It is rounded up, so that `nbf` is never early."""
    time = time.astimezone(timezone.utc)
    time += timedelta(microseconds=-time.microsecond % 1_000)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_time(text):
    """Parses a time in any RFC 3339 form. A finer time than a microsecond, which Python cannot hold, is rounded up."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)", text)
    if not match:
        raise ValueError(f"{text!r} is not a time like 2026-06-01T09:00:00.000Z")
    date, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in "Zz" else zone
    fraction = (fraction or "").ljust(6, "0")
    time = datetime.fromisoformat(f"{date}T{clock}.{fraction[:6]}{zone}")
    return time + timedelta(microseconds=1 if fraction[6:].strip("0") else 0)


def millis_until(time):
    """Returns the milliseconds until this time, rounded up; 0 if the time is past."""
    return max(0, -((now() - time) // timedelta(milliseconds=1)))


# --- Events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event:
    """The argument of a handler. `properties` has all other properties of the message."""

    id: str
    type: str
    reference: str
    nbf: datetime
    attempts: int
    generation: int
    reason: str
    body: bytes
    properties: object


def decode(event_type, properties, body):
    """Reads a delivery from the queue of this type. A header of the wrong kind is poison."""
    headers = properties.headers or {}

    def read(name, expected, convert):
        value = headers.get(name)
        try:
            return None if value is None else convert(value)
        except (TypeError, ValueError, AttributeError):
            raise Poison(f"poison: the header `{name}` should be {expected}") from None

    def text(value):
        if not isinstance(value, str):
            raise TypeError
        return value

    def number(value):
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise TypeError
        return value

    return Event(
        id=properties.message_id or str(uuid.uuid4()),
        type=event_type,
        reference=read("reference", "text", text),
        nbf=read("nbf", "a time like 2026-06-01T09:00:00.000Z", lambda value: parse_time(text(value))),
        attempts=read("attempts", "a whole number, not negative", number) or 0,
        generation=read("generation", "a whole number, not negative", number) or 0,
        reason=read("reason", "text", text),
        body=body,
        properties=properties,
    )


def copied(headers, **changed):
    """Returns the headers of a copy: those of the message, except RabbitMQ's own, with these changes."""
    kept = {name: value for name, value in (headers or {}).items() if not BROKERS_OWN.fullmatch(name)}
    if "reason" in changed:
        changed["reason"] = cut(changed["reason"])
    return {**kept, **changed}


def cut(reason):
    """Returns a reason in one line, cut to the limit."""
    line = " ".join(str(reason).split())
    return line.encode()[:REASON_LIMIT].decode(errors="ignore")
