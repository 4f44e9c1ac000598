"""Run by test_ray.py: a sweep on two nodes; the second is killed once it has sent part of a trial."""

import json
import sys
import threading
import time
from pathlib import Path

from ray.cluster_utils import Cluster

from ndstack.experiments import Experiment, SweepFolder, Watcher, expand, run_sweep
from ndstack.experiments.engines.ray import Ray

STORE = 80_000_000


class Printer(Watcher):
    def ended(self, trial, state, message):
        print(json.dumps({"trial": trial.id, "state": state, "message": message}), flush=True)


def main(place):
    experiment = Experiment.of(json.loads((place / "experiment.json").read_text()), "experiment.json")
    folder = SweepFolder(place / "out")
    trials = expand(folder.begin(experiment, "paper", None))
    node = {"num_cpus": 1, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
    second = cluster.add_node(**node)

    def unfinished(trial):
        place = folder.trial(trial)
        return (place / "last" / "state.safetensors").exists() and not (place / "result.json").exists()

    def kill():
        """As soon as both nodes are in the middle of a trial: two have sent a state, and no result."""
        while sum(map(unfinished, trials)) < 2:
            time.sleep(0.02)
        cluster.remove_node(second, allow_graceful=False)

    threading.Thread(target=kill, daemon=True).start()
    try:
        summary = run_sweep(
            folder, trials, Ray(cluster.address, every=0.2), measures=("test",), watcher=Printer()
        )
    finally:
        cluster.shutdown()
    sys.exit(0 if len(summary.done) == len(trials) else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
