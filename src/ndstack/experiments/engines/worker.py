"""A process of the local engine: `python -m ndstack.experiments.engines.worker`.

It reads jobs as lines of JSON from standard input, and writes outcomes as lines of JSON to standard output.
It ends when its input ends, because the sweep has ended.
"""

import os
import queue
import signal
import sys
import threading
from types import FrameType


def main() -> None:
    """Run jobs until the sweep closes the pipe."""
    signal.signal(signal.SIGINT, _end)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the output of libraries must not reach the sweep
    jobs: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()

    from ndstack.experiments.jobs import do_job, parse_job

    while True:
        job = parse_job(jobs.get())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            outcome = do_job(job)
        finally:
            signal.signal(signal.SIGINT, _end)
        replies.write(outcome.model_dump_json().encode() + b"\n")
        replies.flush()


def _end(number: int, frame: FrameType | None) -> None:
    """End at once, because there is nothing to save between trials."""
    os._exit(0)


def _listen(jobs: "queue.Queue[bytes]") -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
