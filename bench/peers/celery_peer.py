"""Celery as a peer of scripts/bench --peers: sends N tasks, then runs them with a task that does nothing.

    python celery_peer.py AMQP_URL N BYTES [SETTINGS]

SETTINGS is a JSON object that overrides the settings below. `measuring.Phase` explains the output.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

from celery import Celery, Task, maybe_patch_concurrency

from measuring import Adders, Arguments, Phase, Queue, Ran, counting, end_with_parent, report, wait_until

# The fastest of these on two cores: the pools prefork (with and without -O fair), solo, threads and gevent; one to three
# workers; a concurrency of 1, 2, 4, 10 and 100; a prefetch multiplier of 4, 50, 128, 256, 500 and 1,000; early and late
# acknowledgements; one to three processes that send. No results, events, gossip, mingle or heartbeats. Celery publishes
# without confirms by default.
SETTINGS = {
    "confirm": False,
    "adders": 2,
    "workers": 2,
    "pool": "threads",
    "concurrency": 2,
    "prefetch_multiplier": 128,
    "acks_late": False,
    "fair": False,
}
QUEUE = "peer"
# The workers start with this queue, and get the other one when the clock starts.
IDLE = "peer.idle"


def application(url: str, settings: dict, ran: Ran) -> tuple[Celery, Task]:
    app = Celery("celery_peer", broker=url)
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_acks_late=settings["acks_late"],
        worker_prefetch_multiplier=settings["prefetch_multiplier"],
        worker_enable_prefetch_count_reduction=False,
        broker_transport_options={"confirm_publish": settings["confirm"]},
        worker_send_task_events=False,
    )

    @app.task(name="each")
    def each(_payload: str) -> None:
        ran.one()

    return app, each


def worker(url: str, folder: str, name: str, settings_text: str) -> None:
    """Runs a worker of Celery's command line in this process."""
    settings = json.loads(settings_text)
    end_with_parent()
    app, _ = application(url, settings, Ran(folder))
    app.worker_main(
        [
            "worker",
            f"--queues={IDLE}",
            f"--hostname={name}@peer",
            f"--pool={settings['pool']}",
            f"--concurrency={settings['concurrency']}",
            f"--optimization={'fair' if settings['fair'] else 'default'}",
            "--loglevel=WARNING",
            "--without-gossip",
            "--without-mingle",
            "--without-heartbeat",
        ]
    )


@contextmanager
def workers(app: Celery, arguments: Arguments, ran: Ran) -> Iterator[None]:
    """Starts the workers, waits until all answer, and stops them at the end."""
    processes = []
    for n in range(arguments.settings["workers"]):
        own = ["worker", arguments.url, str(ran.folder), str(n), json.dumps(arguments.settings)]
        # Discards the banner.
        processes.append(subprocess.Popen([sys.executable, __file__, *own], stdout=subprocess.DEVNULL))

    def answering() -> int:
        if any(process.poll() is not None for process in processes):
            raise SystemExit("a worker ended at its start")
        return len(app.control.ping(timeout=0.5, limit=len(processes)))

    try:
        wait_until(answering, len(processes))
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def main() -> None:
    arguments = Arguments.read(SETTINGS)
    queue, idle = Queue(arguments.url, QUEUE), Queue(arguments.url, IDLE)
    queue.delete()
    idle.delete()
    with counting() as ran:
        app, each = application(arguments.url, arguments.settings, ran)

        def connect() -> None:
            # Declares the queue with the connection that publishes later.
            with app.producer_or_acquire() as producer:
                app.amqp.queues[QUEUE](producer.channel).declare()

        # The publishers are forked before this process has a connection of Celery's.
        adders = Adders(
            arguments.settings["adders"],
            arguments.count,
            connect=connect,
            add=lambda: each.apply_async((arguments.payload,)),
            close=app.close,
        )
        with workers(app, arguments, ran):
            with Phase("add", "added") as add_phase:
                adders.run()
                wait_until(queue.ready, arguments.count)
            with Phase("work", "worked") as work_phase:
                app.control.add_consumer(QUEUE, exchange=QUEUE, routing_key=QUEUE)
                wait_until(ran.total, arguments.count)
        # The queue may have a few tasks again that have run: a worker does not wait for its last acknowledgements.
        wait_until(ran.total, arguments.count)
        queue.delete()
        idle.delete()
    report("Celery", version("celery"), arguments, add_phase, work_phase)


if sys.argv[1:2] == ["worker"]:
    # Celery's own command line does this when it is imported: gevent has to replace sockets and threads first.
    maybe_patch_concurrency(["celery", "--pool", json.loads(sys.argv[5])["pool"]])
    worker(*sys.argv[2:])
else:
    main()
