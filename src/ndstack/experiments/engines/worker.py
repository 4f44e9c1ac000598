"""`python -m ndstack.experiments.engines.worker`: a process of the local engine.

Jobs come as lines of JSON on standard input, outcomes go as lines of JSON to standard output. When the input
ends, the sweep has ended, and this process ends as well.
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
    os.dup2(2, 1)  # so that what libraries print does not reach the sweep
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
    """End at once: between trials there is nothing to save."""
    os._exit(0)


def _listen(jobs: "queue.Queue[bytes]") -> None:
    for line in sys.stdin.buffer:
        jobs.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
