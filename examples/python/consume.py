#!/usr/bin/env python3
"""Handles the events of one type by hatchery's rules, with no library but pika.

    consume.py mail --handler mailer:send --delays 10s,1m,10m --max-attempts 6

The handler is a function with one argument, a `wire.Event`, in a module on PYTHONPATH. If it returns, the event is done.
If it raises `wire.DeadLetter`, the event can never work. Any other exception is a failed attempt. The delays are those of
the type in `topology.yaml`: each has a queue of its own. AMQP_URL is the broker's URL.

This consumer does not use the register in Redis: it also handles replaced events and redeliveries, and may run at the
same time as another worker for the same reference. So use it only for types with `register: off`, or without coalescing.
"""

import argparse
import importlib
import os
import signal
import sys
import uuid

import pika

import wire


class Consumer:
    """Consumes the processing queue of one type, one delivery after the other."""

    def __init__(self, connection, topology, event_type, handler, delays, max_attempts, ladder):
        self.topology, self.event_type, self.handler = topology, event_type, handler
        self.delays, self.max_attempts, self.ladder = delays, max_attempts, ladder
        self.stopping = False
        self.deliveries = connection.channel()
        # Copies are confirmed. They have a channel of their own, so that a failed copy does not close the channel of the
        # acknowledgements.
        self.copies = connection.channel()
        self.copies.confirm_delivery()

    def run(self, prefetch):
        self.deliveries.basic_qos(prefetch_count=prefetch)
        # Without the argument `topology status` takes this consumer for a stranger.
        ours = {"x-hatchery-owner": self.topology}
        self.deliveries.basic_consume(f"{self.topology}.processor.{self.event_type}", self.deliver, arguments=ours)
        self.deliveries.start_consuming()
        if not self.stopping:
            sys.exit("the broker has ended the consumer: was its queue deleted?")

    def stop(self):
        """Stops after the running event, which is finished and acknowledged; deliveries that wait here go back."""
        self.stopping = True
        self.deliveries.stop_consuming()

    def deliver(self, channel, method, properties, body):
        """Handles the event, publishes the copy that follows from the result, and only then acknowledges.

        An error before the acknowledgement ends this process or its connection, and RabbitMQ delivers the event again.
        So an event may run twice, and is never lost.
        """
        try:
            event = wire.decode(self.event_type, properties, body)
        except wire.Poison as poison:
            self.copy("dead-letter", f"{self.event_type}.dead-letter", properties, body, reason=str(poison))
        else:
            self.work(event)
        channel.basic_ack(method.delivery_tag)

    def work(self, event):
        early = wire.millis_until(event.nbf) if event.nbf else 0
        if early:
            # The event is early, because its delay is longer than the ladder's or because a clock is wrong. The same copy
            # is published again for the rest of the delay.
            key = wire.ladder_key(event.type, early, self.ladder)
            return self.copy("scheduler", key, event.properties, event.body, event.id)
        try:
            self.handler(event)
        except wire.DeadLetter as never:
            self.follow(event, "dead-letter", event.attempts, f"dead-letter: {never}")
        except Exception as error:  # pylint: disable=broad-except
            self.fail(event, error)

    def fail(self, event, error):
        """Sends the event to its next retry queue, or to dead-letter after the last attempt.

        Attempts beyond the list of delays use the last delay.
        """
        attempts = event.attempts + 1
        failed = f'attempt={attempts} failed_at={wire.time_text(wire.now())} error="{error}"'
        if attempts >= self.max_attempts:
            return self.follow(event, "dead-letter", attempts, f"given up: {failed}")
        ttl = self.delays[min(attempts, len(self.delays)) - 1]
        self.follow(event, "retry", attempts, f"retry: {failed}", wire.ttl_name(wire.millis(ttl)))

    def follow(self, event, exchange, attempts, reason, route="dead-letter"):
        changed = {"attempts": attempts, "generation": event.generation + 1, "reason": reason}
        self.copy(exchange, f"{event.type}.{route}", event.properties, event.body, event.id, **changed)

    def copy(self, exchange, key, properties, body, event_id=None, **changed):
        """Publishes a copy with all properties of the message, and waits for the confirm; pika raises without one."""
        copy = pika.BasicProperties(
            content_type=properties.content_type,
            content_encoding=properties.content_encoding,
            correlation_id=properties.correlation_id,
            reply_to=properties.reply_to,
            message_id=properties.message_id or event_id or str(uuid.uuid4()),
            timestamp=properties.timestamp,
            type=properties.type or self.event_type,
            app_id=properties.app_id,
            # Without user_id, which RabbitMQ checks, expiration, which would end the copy early, and priority, which would
            # let it overtake others.
            delivery_mode=2,
            headers=wire.copied(properties.headers, **changed),
        )
        self.copies.basic_publish(f"{self.topology}.{exchange}", key, body, copy)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("type")
    parser.add_argument("--topology", default="billing")
    parser.add_argument("--handler", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--delays", type=lambda text: text.split(","), default=["10s", "1m", "10m"])
    parser.add_argument("--max-attempts", type=int, default=6)
    parser.add_argument("--ladder", default="250ms-27")
    parser.add_argument("--prefetch", type=int, default=10)
    args = parser.parse_args()

    module, function = args.handler.split(":")
    sys.path.insert(0, os.getcwd())
    handler = getattr(importlib.import_module(module), function)
    parameters = pika.URLParameters(os.environ.get("AMQP_URL", "amqp://guest:guest@localhost:5672/%2F"))
    # pika sends heartbeats only between two events, so a handler that takes minutes needs a long interval.
    parameters.heartbeat = 600
    connection = pika.BlockingConnection(parameters)
    consumer = Consumer(
        connection, args.topology, args.type, handler, args.delays, args.max_attempts, args.ladder
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: connection.add_callback_threadsafe(consumer.stop))
    consumer.run(args.prefetch)
    connection.close()


if __name__ == "__main__":
    main()
