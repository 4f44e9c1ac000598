"""Runs and their stacks as tables of text, for terminals."""

import math
from collections.abc import Iterator

from ndstack.analysis.stack_run import Move, StackRun
from ndstack.analysis.stack_runs import StackRuns
from ndstack.analysis.transition_weights import Posterior

COLUMNS = ("step", "read", "action", "posterior", "state", "stack")


def summary_lines(runs: StackRuns) -> Iterator[str]:
    """Yield the number of runs, and the entropy of their posterior."""
    if runs.log_weight == -math.inf:
        yield "no run survives"
        return
    entropy = runs.entropy()
    effective = f", as much as {math.exp(entropy):.4g} equally probable runs" if 0 < entropy < 30 else ""
    yield f"{_number(runs.log_count)}, entropy {entropy:.4f} nats{effective}"


def run_lines(run: StackRun, posterior: Posterior, title: str) -> Iterator[str]:
    """Yield the lines of a table with the symbol, action, posterior, state and stack of each step of a run.

    Args:
        run: the run.
        posterior: the posterior of the runs from which it was chosen.
        title: the title of the table, which precedes the probability of the run.
    """
    names = run.names
    rows = [COLUMNS, ("0", "", "", "", names.states[0], names.symbols[0])]
    for move, after, stack in zip(run.moves, run.configurations[1:], run.stacks()[1:], strict=True):
        read = names.inputs[move.time - 1]
        rows.append(
            (
                str(move.time),
                read,
                move.action if move.pushed is None else f"{move.action} {names.symbols[move.pushed]}",
                f"{probability_of(move, posterior):.4f}",
                names.states[after.state],
                " ".join(stack),
            )
        )
    yield f"{title}: probability {run.probability:.4g}, log weight {run.log_weight:.4f}"
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield ("  " + "  ".join([*cells, row[-1]])).rstrip()


def probability_of(move: Move, posterior: Posterior) -> float:
    """Return the posterior probability of a transition at its step."""
    place = (move.time - 1, move.state, move.symbol, move.target)
    if move.pushed is None:
        return float(posterior.pop[place])
    table = posterior.push if move.action == "push" else posterior.replace
    return float(table[(*place, move.pushed)])


def _number(log: float) -> str:
    if log < math.log(1e6):
        count = round(math.exp(log))
        return f"{count} run{'s' * (count != 1)}"
    return f"about 10^{log / math.log(10):.1f} runs"
