#!/usr/bin/env python3
"""Publishes to a hatchery topology through `topology publish --batch - -o ndjson`, a child process.

The child reserves versions in the register, so its events are coalesced, listed and cancelled like those of hatchery's
own publisher. This needs `topology` and the topology's file, and no AMQP library.

    echo '{"type": "mail", "reference": "1234", "payload": {"to": "ann"}}' | batch.py
"""

import json
import subprocess
import sys


class Refused(Exception):
    """The line was not carried out; the message holds the reason."""


class Publisher:
    """Owns one child process, which runs until `close`. Use it from one thread."""

    def __init__(self, *options, program="topology"):
        command = [program, *options, "publish", "--batch", "-", "-o", "ndjson"]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def publish(self, event_type, payload, **fields):
        """Publishes one event, waits until the broker has it, and returns its id.

        The fields are those of `topology publish --help`: reference, nbf or delay, id, correlation_id.
        """
        return self._ask({"type": event_type, "payload": payload, **fields})["id"]

    def cancel(self, event_type, **fields):
        """Cancels the events of a reference, or one by its id. Returns the number of events by result."""
        return self._ask({"cancel": {"type": event_type, **fields}})["results"]

    def reschedule(self, event_type, **fields):
        """Gives the events of a reference, or one by its id, another time: `to` or `delay`."""
        return self._ask({"reschedule": {"type": event_type, **fields}})["results"]

    def _ask(self, line):
        # This is one line, because JSON escapes newlines.
        self.child.stdin.write(json.dumps(line) + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            # The child has written the reason to standard error. The line may be carried out or not.
            raise ConnectionError(f"`topology publish` ended with {self.child.wait()} before it answered")
        answer = json.loads(answer)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self):
        """Ends the child process."""
        self.child.stdin.close()
        self.child.wait()


def main():
    publisher = Publisher(*sys.argv[1:])
    for line in sys.stdin:
        event = json.loads(line)
        print(publisher.publish(event.pop("type"), event.pop("payload", None), **event), flush=True)
    publisher.close()


if __name__ == "__main__":
    main()
