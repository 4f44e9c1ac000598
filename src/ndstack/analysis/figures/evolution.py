"""The change of stack actions on one string during training (section 6.4, figure 6.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from ndstack import files
from ndstack.analysis.figures.picture import CELL, Picture, check_steps, heat_map, label_steps
from ndstack.analysis.stack_trace import StackTrace
from ndstack.analysis.trace import Model, trace
from ndstack.analysis.transition_weights import Floats
from ndstack.errors import NdstackError
from ndstack.grammars.grammar import Word
from ndstack.plotting import new_grid
from ndstack.training import Run


class _EvolutionFile(BaseModel):
    inputs: tuple[str, ...]
    epochs: tuple[int, ...]
    action_names: tuple[str, ...]
    actions: list[list[list[float]]]


@dataclass(frozen=True, eq=False)
class Evolution:
    """The actions of one stack on one string after each of several epochs.

    Attributes:
        inputs: the symbol read at each step.
        epochs: the numbers of the epochs; 0 is before training.
        action_names: as in `StackTrace`.
        actions: [epochs, n, A].
    """

    inputs: tuple[str, ...]
    epochs: tuple[int, ...]
    action_names: tuple[str, ...]
    actions: Floats

    @classmethod
    def of_traces(cls, traces: Mapping[int, StackTrace]) -> Evolution:
        """Return the evolution of a stack from its traces after several epochs."""
        if not traces:
            raise NdstackError("no snapshots given; train with --snapshots N to keep them")
        epochs = tuple(sorted(traces))
        first = traces[epochs[0]]
        actions = np.stack([traces[epoch].actions for epoch in epochs])
        return cls(first.inputs, epochs, first.action_names, actions)

    @classmethod
    def of_models(cls, models: Mapping[int, Model], word: Word, stack: int = 0) -> Evolution:
        """Return the evolution of a stack from the models after several epochs."""
        return cls.of_traces({epoch: trace(model, word).stack(stack) for epoch, model in models.items()})

    @classmethod
    def of_run(cls, run: Run, word: Word, stack: int = 0) -> Evolution:
        """Return the evolution of a stack from the snapshots of a training run."""
        return cls.of_models({epoch: run.load(name) for epoch, name in run.snapshots().items()}, word, stack)

    def save(self, path: str | Path) -> None:
        """Write it as JSON: inputs, epochs, action_names, and actions as `[epoch][step][action]`."""
        content = _EvolutionFile(
            inputs=self.inputs,
            epochs=self.epochs,
            action_names=self.action_names,
            actions=np.round(self.actions, 6).tolist(),
        )
        files.replace(Path(path), content.model_dump_json())

    @classmethod
    def load(cls, path: str | Path) -> Evolution:
        """Read an evolution that `save` wrote."""
        found = files.read_json_as(Path(path), _EvolutionFile, "an evolution of actions")
        shape = (len(found.epochs), len(found.inputs), len(found.action_names))
        sizes = {(len(found.actions), len(steps), len(one)) for steps in found.actions for one in steps}
        if sizes != {shape}:
            raise NdstackError(f"{path} is damaged: expected actions of shape {list(shape)}")
        actions = np.array(found.actions, np.float64)
        return cls(found.inputs, found.epochs, found.action_names, actions)


def draw_evolution(
    evolution: Evolution, correct: Sequence[str] | None = None, title: str = "Stack actions over training"
) -> Picture:
    """Draw the actions with epochs from top to bottom and steps from left to right.

    Args:
        evolution: the actions.
        correct: the name of the correct action at each step, whose weight is drawn in one panel. By default,
            there is a panel for each action.
        title: the title of the picture.
    """
    steps, count = len(evolution.inputs), len(evolution.epochs)
    check_steps(steps)
    panels = {name: evolution.actions[:, :, i] for i, name in enumerate(evolution.action_names)}
    if correct is not None:
        if len(correct) != steps or not set(correct) <= set(panels):
            raise NdstackError(
                f"{len(correct)} correct actions given, expected {steps}, each one of {', '.join(panels)}"
            )
        chosen = np.stack([panels[name][:, t] for t, name in enumerate(correct)], axis=1)
        panels = {"correct action": chosen}
    height = 0.7 + len(panels) * (0.7 + max(0.9, 0.11 * count))
    figure, grid = new_grid(len(panels), 1, max(4.2, 2.0 + steps * CELL), height)
    every = max(1, round(count / 8))
    for (name, values), (axes,) in zip(panels.items(), grid, strict=True):
        heat_map(axes, values, bar="share")
        label_steps(axes, evolution.inputs)
        axes.set_yticks(
            range(0, count, every), [str(epoch) for epoch in evolution.epochs[::every]], fontsize=8
        )
        axes.set_ylabel("epoch")
        axes.set_title(f"{title}: {name}", fontsize=10)
    grid[-1][0].set_xlabel("symbol read")
    return Picture(figure)
