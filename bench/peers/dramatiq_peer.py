"""Dramatiq as a peer of scripts/bench --peers: enqueues N messages, then works on them with an actor that does nothing.

    python dramatiq_peer.py AMQP_URL N BYTES [SETTINGS]

SETTINGS is a JSON object that overrides the settings below. `measuring.Phase` explains the output.
"""

import os
import signal
from importlib.metadata import version

from measuring import FORK, STALLED_SECONDS, Adders, Arguments, Phase, Queue, counting, end_with_parent, report, wait_until

# The fastest of these on two cores: one to three processes; 1, 2, 4 and 8 threads in each; a prefetch of twice the
# threads, 100, 500 and 1,000; the default middleware, only Retries (a third faster) and none; one to three processes that
# send. Confirms are off by default, and sending with them was a third as fast.
SETTINGS = {
    "confirm": False,
    "middleware": "retries",
    "adders": 2,
    "processes": 2,
    "threads": 4,
    "prefetch": 100,
}
QUEUE = "peer"


def main() -> None:
    arguments = Arguments.read(SETTINGS)
    settings = arguments.settings
    # Dramatiq reads this when it is imported.
    os.environ["dramatiq_queue_prefetch"] = str(settings["prefetch"])
    import dramatiq
    from dramatiq.brokers.rabbitmq import RabbitmqBroker
    from dramatiq.middleware import Retries

    middleware = {"default": None, "retries": [Retries()], "none": []}[settings["middleware"]]
    broker = RabbitmqBroker(url=arguments.url, confirm_delivery=settings["confirm"], middleware=middleware)
    dramatiq.set_broker(broker)
    with counting() as ran:

        @dramatiq.actor(queue_name=QUEUE)
        def each(_payload: str) -> None:
            ran.one()

        queue = Queue(arguments.url, QUEUE)
        queue.delete()

        adders = Adders(
            settings["adders"],
            arguments.count,
            connect=lambda: broker.declare_queue(QUEUE, ensure=True),
            add=lambda: each.send(arguments.payload),
            close=broker.close,
        )
        start = FORK.Barrier(settings["processes"] + 1)

        def work() -> None:
            # All threads of this process inherit this, so that only `sigwait` gets the signal.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            end_with_parent()
            worker = dramatiq.Worker(broker, worker_threads=settings["threads"])
            start.wait()
            worker.start()
            signal.sigwait({signal.SIGTERM})
            worker.stop()

        workers = [FORK.Process(target=work, daemon=True) for _ in range(settings["processes"])]
        for process in workers:
            process.start()
        with Phase("add", "added") as add_phase:
            adders.run()
            wait_until(queue.ready, arguments.count)

        with Phase("work", "worked") as work_phase:
            start.wait(STALLED_SECONDS)
            wait_until(ran.total, arguments.count)
        for process in workers:
            process.terminate()
            process.join()
        # What was not acknowledged is ready again.
        wait_until(queue.ready, 0)
        wait_until(ran.total, arguments.count)
        queue.delete()
    report("Dramatiq", version("dramatiq"), arguments, add_phase, work_phase)


main()
