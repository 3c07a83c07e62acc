"""A handler for `consume.py mail --handler mailer:send`."""

import json

from wire import DeadLetter


def send(event):
    mail = json.loads(event.body)
    if "to" not in mail:
        raise DeadLetter("nobody to send it to")
    print(f"{event.id}: to {mail['to']}, attempt {event.attempts + 1}", flush=True)
