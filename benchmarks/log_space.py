"""Log space by blocks, and by single numbers: `python -m benchmarks.log_space --steps 400 --scale 5`.

One sequence of RNS 2-3 without derivatives, as the precision guard computes it where float64 is too narrow.
Half of the steps push, half of them pop, and everything else is four standard deviations behind. Seconds are
of processor time.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.cpu.scaled_chart import ScaledChart
from ndstack.ops.nondeterministic.log_space import LogSpaceChart, start_stepper
from ndstack.ops.nondeterministic.settings import Setting, action_sizes

SETTING = Setting(2, 3, None, True, "cpu", False)


def actions_of(steps: int, scale: float) -> Tensor:
    """Log weights [1, n, A] of pushes and then of pops."""
    push, replace, pop = action_sizes(SETTING.states, SETTING.symbols)
    actions = scale * torch.randn(1, steps, push + replace + pop, dtype=torch.float64)
    actions[:, : steps // 2, :push] += 4 * scale
    actions[:, steps // 2 :, push + replace :] += 4 * scale
    return actions


def seconds(chart: LogSpaceChart, actions: Tensor) -> float:
    """Processor time of all steps."""
    start = time.process_time()
    chart.advance(actions, False)
    return time.process_time() - start


@torch.no_grad()
def main() -> None:
    """Compile, measure, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--scale", type=float, default=5.0, help="standard deviation of log weights, in nats")
    options = parser.parse_args()
    steps, scale = options.steps, options.scale
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = []
    for n in (20, steps):
        actions = actions_of(n, scale)
        blocks = LogSpaceChart(ScaledChart.start(SETTING, 1, n), SETTING)
        single = LogSpaceChart(start_stepper(SETTING, 1, n), SETTING)
        found = [seconds(chart, actions) for chart in (single, blocks)]
    print(f"{steps} steps, scale {scale:g}: single numbers {found[0]:.2f} s, blocks {found[1]:.2f} s")


if __name__ == "__main__":
    main()
