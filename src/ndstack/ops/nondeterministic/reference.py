"""Lang's algorithm in the log semiring, step by step, as the dissertation writes and runs it.

This is the readable and slow backend: the oracle of the tests, the baseline of the benchmarks and
the last resort of the precision guard. Times run from -1 to n (i = -1 is the configuration below
the initial bottom symbol of section 8.2.3); the chart keeps gamma[i -> t] at [:, i + 1, t].

    gamma[i,q,x -> t,r,y]  = [i = t-1] push[q,x -> r,y]
                           + sum_{s,z} gamma[i,q,x -> t-1,s,z] replace[s,z -> r,y]
                           + sum_{k=i+1}^{t-2} sum_u gamma[i,q,x -> k,u,y] gamma'[k,u,y -> t,r]
    gamma'[k,u,y -> t,r]   = sum_{s,z} gamma[k,u,y -> t-1,s,z] pop[s,z -> r]
    alpha[t,r,y]           = sum_{i,q,x} alpha[i,q,x] gamma[i,q,x -> t,r,y]

zeta has the equations of gamma with push[q,x -> r,y] v_t in place of push[q,x -> r,y] (section
9.1). Without the bottom fix (chapter 4), i starts from 0 and alpha[0] is the start configuration.
With a window D (section 7.2), gamma[i -> t] is zero where t - i > D.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ndstack.ops.nondeterministic.semirings import LOG, Semiring
from ndstack.ops.nondeterministic.store import Filled
from ndstack.ops.runtime.autograd import refuse_second_derivatives


@dataclasses.dataclass
class Chart:
    """The weights known so far, written in place, one time step after the other.

    Attributes:
        gamma: [B, n+1, n+1, Q, S, Q, S], inner weights.
        alpha: [B, n+2, Q, S], forward weights, alpha[t] at t + 1.
        zeta: [B, n+1, n+1, Q, S, Q, S, m] or None, inner vectors.
    """

    gamma: Tensor
    alpha: Tensor
    zeta: Tensor | None
    semiring: Semiring
    first: int
    window: int

    @classmethod
    def start(
        cls,
        like: Tensor,
        steps: int,
        semiring: Semiring,
        bottom: Tensor | None,
        window: int | None,
        bottom_fix: bool,
    ) -> Chart:
        """The chart at time 0, for actions like `like`, [B, n, Q, S, Q].

        Args:
            bottom: [m] or [B, m], the semiring value of the bottom vector, or None without vectors.
        """
        batch, _, states, symbols, _ = like.shape
        kinds = (states, symbols)
        gamma = like.new_full((batch, steps + 1, steps + 1, *kinds, *kinds), semiring.zero)
        alpha = like.new_full((batch, steps + 2, *kinds), semiring.zero)
        zeta = None
        if bottom is not None:
            zeta = like.new_full((*gamma.shape, bottom.shape[-1]), semiring.zero)
        alpha[:, 1, 0, 0] = semiring.one
        if bottom_fix:
            alpha[:, 0, 0, 0] = semiring.one
            gamma[:, 0, 0, 0, 0, 0, 0] = semiring.one
            if zeta is not None and bottom is not None:
                zeta[:, 0, 0, 0, 0, 0, 0] = bottom
        first = -1 if bottom_fix else 0
        return cls(gamma, alpha, zeta, semiring, first, sys.maxsize if window is None else window)

    def lowest(self, t: int) -> int:
        """The smallest i for which gamma[i -> t] is kept."""
        return max(self.first, t - self.window)

    def tensors(self) -> list[Tensor]:
        """Everything that later steps read."""
        return [self.gamma, self.alpha] + ([] if self.zeta is None else [self.zeta])

    def enlarged(self, steps: int, forgotten: int) -> Chart:
        """A copy with room for `steps` steps, without the first `forgotten` times."""

        def copied(tensor: Tensor, times: int) -> Tensor:
            """The same numbers, with other places in the dimensions of time."""
            more = steps + 1 - self.gamma.shape[1]
            return moved(tensor, times, -forgotten, more + forgotten, self.semiring.zero).clone()

        zeta = None if self.zeta is None else copied(self.zeta, 2)
        return dataclasses.replace(self, gamma=copied(self.gamma, 2), alpha=copied(self.alpha, 1), zeta=zeta)

    def reads(self, t: int) -> list[tuple[int, Any]]:
        """What step t reads: (which of `tensors`, where), in the order that `_advance` expects."""
        low = self.lowest(t)
        i = slice(low + 1, t)  # i = low .. t-2
        k = slice(low + 1, max(t - 1, 0))  # k = low+1 .. t-2
        every = slice(None)
        places: list[tuple[int, Any]] = [(1, (every, slice(low + 1, t + 1)))]
        for which in (0, 2) if self.zeta is not None else (0,):
            places += [(which, (every, i, t - 1)), (which, (every, i, k))]
        return places


def _column(
    semiring: Semiring,
    before: Tensor,
    known: Tensor,
    extended: Tensor | None,
    pushed: Tensor,
    replace: Tensor,
) -> Tensor:
    """gamma[. -> t], or zeta[. -> t] with trailing dimension m: [B, i, Q, S, Q, S(, m)].

    Args:
        before: the column of time t - 1, without i = t - 1.
        known: the columns of times k, [B, i, k, Q, S, Q, S(, m)].
        extended: gamma'[. -> t], [B, k, Q, S, Q], or None if there is no k.
        pushed: the column's value for i = t - 1, [B, Q, S, Q, S(, m)].
    """
    newest = pushed.unsqueeze(1)
    if before.shape[1] == 0:
        return newest
    m = "m" if pushed.dim() == 6 else ""
    column = semiring.einsum(f"biqxsz{m},bszry->biqxry{m}", before, replace)
    if extended is not None:
        popped = semiring.einsum(f"bikqxuy{m},bkuyr->biqxry{m}", known, extended)
        column = semiring.add(column, popped)
    return torch.cat([column, newest], dim=1)


def _advance(
    semiring: Semiring, reads: list[Tensor], actions: list[Tensor]
) -> tuple[list[Tensor], list[Tensor]]:
    """The new columns of the chart, and what the readings need of them.

    Args:
        reads: alpha [B, i, Q, S], then for gamma, and for zeta if there is one, the column of time
            t - 1 [B, i, Q, S, Q, S(, m)] and the columns of times k [B, i, k, Q, S, Q, S(, m)].
        actions: push, replace, pop [B, Q, S, Q, S], [B, Q, S, Q, S], [B, Q, S, Q] and, with
            vectors, v_t [B, m], all of time t.

    Returns:
        The columns of gamma, alpha (and zeta) at t, and the outputs: alpha[t] [B, Q, S], the
        weight of each place where the top element stands [B, Q, S, i], and, with vectors, the
        reading's numerator [B, Q, S, m].
    """
    einsum = semiring.einsum
    push, replace, pop = actions[:3]
    alpha, before, known = reads[:3]
    extended = einsum("bkuysz,bszr->bkuyr", before[:, 1:], pop) if before.shape[1] > 1 else None
    column = _column(semiring, before, known, extended, push, replace)
    places = einsum("biqx,biqxry->bryi", alpha, column)
    now = einsum("bryi,i->bry", places, torch.full_like(places[0, 0, 0], semiring.one))
    columns, outputs = [column, now], [now, places]
    if len(actions) == 4:
        pushed = einsum("bqxry,bm->bqxrym", push, actions[3])
        inner = _column(semiring, reads[3], reads[4], extended, pushed, replace)
        columns.append(inner)
        outputs.append(einsum("biqx,biqxrym->brym", alpha, inner))
    return columns, outputs


class _Step(torch.autograd.Function):
    """One time step that writes the chart in place (section 4.7, first trick).

    Autograd refuses to differentiate through memory that was written since. Here only columns that
    no earlier step has read are ever written, so the parts that a step reads become leaves of a
    graph of its own (`.data` has its own version counter), and the gradient of the chart travels
    from step to step through `links`, which stand for the chart's tensors and hold no memory.
    """

    @staticmethod
    def forward(ctx: Any, chart: Chart, t: int, count: int, *inputs: Tensor) -> Any:
        links, given = inputs[:count], inputs[count:]
        tensors, places = chart.tensors(), chart.reads(t)
        needed = any(ctx.needs_input_grad)
        reads = [tensors[which].data[where].requires_grad_(needed) for which, where in places]
        actions = [action.detach().requires_grad_(needed) for action in given]
        with torch.set_grad_enabled(needed):
            columns, outputs = _advance(chart.semiring, reads, actions)
        written: list[Any] = [(slice(None), slice(chart.lowest(t) + 1, t + 1), t)] * count
        written[1] = (slice(None), t + 1)
        with torch.no_grad():
            for tensor, where, column in zip(tensors, written, columns, strict=True):
                tensor[where] = column
        if needed:
            ctx.graph = (reads, actions, columns, outputs)
            ctx.tensors, ctx.places, ctx.written = tensors, places, written
        ctx.set_materialize_grads(False)
        shown = tuple(output.detach() for output in outputs)
        return *shown, *(link.view_as(link) for link in links)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        refuse_second_derivatives()
        reads, actions, columns, outputs = ctx.graph
        shown, sums = grads[: len(outputs)], list(grads[len(outputs) :])
        sums = [
            torch.zeros_like(tensor) if total is None else total
            for tensor, total in zip(ctx.tensors, sums, strict=True)
        ]
        received = [total[where] for total, where in zip(sums, ctx.written, strict=True)]
        received += [
            torch.zeros_like(output) if grad is None else grad
            for output, grad in zip(outputs, shown, strict=True)
        ]
        leaves = [*reads, *actions]
        found = torch.autograd.grad(columns + outputs, leaves, received, allow_unused=True, retain_graph=True)
        for (which, where), more in zip(ctx.places, found, strict=False):
            if more is not None:
                sums[which][where] += more
        return None, None, None, *sums, *found[len(reads) :]


@dataclasses.dataclass
class Weights:
    """What the algorithm says about every step, in the semiring.

    Attributes:
        alpha: [B, n, Q, S], total weight of the runs that end in each configuration type.
        places: [B, n, Q, S, n+1], the part of it whose top element was pushed at step j (j = 0
            is the initial bottom).
        vectors: [B, n, Q, S, m] or None, the numerator of the vector reading.
    """

    alpha: Tensor
    places: Tensor
    vectors: Tensor | None


class Stepper:
    """Lang's algorithm step by step, for a controller that sees each reading before it acts.

    Args:
        like: [B, n, Q, S, Q], for sizes, dtype and device.
        bottom: [m] or [B, m], the vector of the initial bottom symbol, or None without vectors.
        window, bottom_fix, semiring: see `run`.
    """

    def __init__(
        self,
        like: Tensor,
        bottom: Tensor | None = None,
        window: int | None = None,
        bottom_fix: bool = True,
        semiring: Semiring = LOG,
    ) -> None:
        self.steps, self.time, self.filled = like.shape[1], 0, Filled(0)
        start = None if bottom is None else bottom.detach()
        self.chart = Chart.start(like.detach(), self.steps, semiring, start, window, bottom_fix)
        self.links = [tensor.new_zeros(()).expand(tensor.shape) for tensor in self.chart.tensors()]
        if bottom is not None and bottom_fix:
            bottom_link: Any = _BottomLink.apply
            self.links[2] = bottom_link(self.links[2], bottom)

    def successor(self, steps: int) -> Stepper:
        """A stepper with room for `steps` more steps, which leave this one as it is.

        It is at the same time; with a window, perhaps, at an earlier one, because the chart is moved.
        """
        new, end = copy.copy(self), self.time + steps
        if self.filled.claim(self.time) and end <= self.steps:
            return new
        forgotten = max(0, self.time - self.chart.window)
        new.time, end = self.time - forgotten, end - forgotten
        new.steps = max(end, 2 * new.time)
        new.chart, new.filled = self.chart.enlarged(new.steps, forgotten), Filled(end)
        resized: Callable[[Tensor, Tensor, int], Tensor] = _Enlarged.apply
        pairs = zip(self.links, new.chart.tensors(), strict=True)
        new.links = [resized(link, tensor, forgotten) for link, tensor in pairs]
        return new

    def map(self, change: Callable[[Tensor], Tensor]) -> Stepper:
        """The same stepper with every tensor changed: detached, or with other rows of the batch."""
        new, chart = copy.copy(self), self.chart
        zeta = None if chart.zeta is None else change(chart.zeta)
        new.chart = dataclasses.replace(
            chart, gamma=change(chart.gamma), alpha=change(chart.alpha), zeta=zeta
        )
        new.links = [change(link) for link in self.links]
        return new

    def step(self, *actions: Tensor) -> list[Tensor]:
        """One step.

        Args:
            actions: push, replace and pop, [B, Q, S, Q, S], [B, Q, S, Q, S], [B, Q, S, Q], and,
                with vectors, the pushed one [B, m].

        Returns:
            The forward weights alpha[t] [B, Q, S], the part of them whose top element was pushed
            at step j [B, Q, S, n + 1], and, with vectors, the numerator of the reading.
        """
        self.time += 1
        one_step: Any = _Step.apply
        count = len(self.links)
        alpha, place, *rest = one_step(self.chart, self.time, count, *self.links, *actions)
        self.links = rest[-count:]
        self.filled.reached(self.time)
        pad = (self.chart.lowest(self.time) + 1, self.steps - self.time)
        padded = torch.nn.functional.pad(place, pad, value=self.chart.semiring.zero)
        return [alpha, padded, *rest[:-count]]


def run(
    push: Tensor,
    replace: Tensor,
    pop: Tensor,
    *,
    vectors: Tensor | None = None,
    bottom: Tensor | None = None,
    window: int | None = None,
    bottom_fix: bool = True,
    semiring: Semiring = LOG,
) -> Weights:
    """Run Lang's algorithm over whole sequences; all inputs are values of the semiring.

    Args:
        push: [B, n, Q, S, Q, S].
        replace: [B, n, Q, S, Q, S].
        pop: [B, n, Q, S, Q].
        vectors: [B, n, m], pushed vectors.
        bottom: [m] or [B, m], the vector of the initial bottom symbol; the semiring's zero if not given.
        window: the largest t - i for which gamma[i -> t] is kept.
        bottom_fix: whether the initial bottom symbol can be replaced and uncovered (chapter 8).
        semiring: where to add and multiply.
    """
    if vectors is None:
        bottom = None
    elif bottom is None:
        bottom = vectors.new_full(vectors.shape[-1:], semiring.zero)
    stepper = Stepper(pop, bottom, window, bottom_fix, semiring)
    given = [push, replace, pop] + ([] if vectors is None else [vectors])
    results = [stepper.step(*(tensor[:, t] for tensor in given)) for t in range(push.shape[1])]
    alpha, places, *numerators = (torch.stack(parts, 1) for parts in zip(*results, strict=True))
    return Weights(alpha, places, numerators[0] if numerators else None)


class _BottomLink(torch.autograd.Function):
    """Brings the gradient of zeta[-1 -> 0] to the bottom vector."""

    @staticmethod
    def forward(ctx: Any, link: Tensor, bottom: Tensor) -> Tensor:
        ctx.shared = bottom.dim() == 1
        return link.view_as(link)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        each = grads[0][:, 0, 0, 0, 0, 0, 0]
        return None, each.sum(0) if ctx.shared else each


class _Enlarged(torch.autograd.Function):
    """Brings the gradient of an enlarged chart to the chart that it was copied from."""

    @staticmethod
    def forward(ctx: Any, link: Tensor, enlarged: Tensor, forgotten: int) -> Tensor:
        ctx.forgotten, ctx.times = forgotten, 1 if link.dim() == 4 else 2
        ctx.more = enlarged.shape[1] - link.shape[1]
        return link.new_zeros(()).expand(enlarged.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return moved(grads[0], ctx.times, ctx.forgotten, -ctx.more - ctx.forgotten, 0.0), None, None


def moved(tensor: Tensor, times: int, before: int, after: int, fill: float) -> Tensor:
    """A tensor [B, ...] with more places, or fewer, at both ends of its first `times` dimensions of time."""
    padding = [0, 0] * (tensor.dim() - 1 - times) + [before, after] * times
    return torch.nn.functional.pad(tensor, padding, value=fill)
