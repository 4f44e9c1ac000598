"""The output layer and its cross-entropy over a large vocabulary, without all logits in memory at once.

With 10,000 words, the logits of a batch of 32 x 35 and their derivatives take 90 MB. Here they are computed
for `ROWS` tokens at a time. Because the loss is a sum over tokens, the derivatives with respect to the hidden
vectors and the weights are known, up to a factor, as soon as the logits are. They are computed immediately,
so no logits are kept or computed twice. docs/natural-language.md compares time and memory with torch's own
functions.
"""

from typing import Any

import torch
from torch import Tensor

from ndstack.nn.language_models.adaptive import AdaptiveOutput
from ndstack.nn.language_models.language_model import IGNORED
from ndstack.nn.networks import unmodified

ROWS = 128
"""The number of tokens whose logits are in memory at a time."""


def total_loss(hidden: Tensor, output: torch.nn.Linear | AdaptiveOutput, targets: Tensor) -> Tensor:
    """Return the sum of -log p over all targets, in nats.

    Args:
        hidden: [..., H].
        output: the layer that computes logits.
        targets: [...], indices, or `IGNORED` where nothing is scored.
    """
    rows, wanted = hidden.flatten(0, -2), targets.flatten()
    scored = wanted != IGNORED
    if not bool(scored.all()):
        rows, wanted = rows[scored], wanted[scored]
    if isinstance(output, AdaptiveOutput) and not unmodified.hooked(output):
        return output.total_loss(rows, wanted)
    if not unmodified.is_linear(output):  # a replaced layer, or one with hooks, has to be called
        return torch.nn.functional.cross_entropy(output(rows), wanted, reduction="sum")
    weight, bias = output.weight, output.bias
    needed = torch.is_grad_enabled() and any(t.requires_grad for t in (rows, weight, bias))
    if torch.is_autocast_enabled(rows.device.type):
        rows = rows.to(weight.dtype)
    if not needed:
        return _total(rows, weight, bias, wanted, None)
    total: Tensor = _TotalLoss.apply(rows, weight, bias, wanted)  # type: ignore[no-untyped-call]
    return total


@torch.no_grad()
def surprisals(hidden: Tensor, output: torch.nn.Linear | AdaptiveOutput, targets: Tensor) -> Tensor:
    """Return -log p of each target, in nats, in the shape of `targets`; 0 where a target is `IGNORED`."""
    rows, wanted = hidden.flatten(0, -2), targets.flatten()
    found = [
        torch.nn.functional.cross_entropy(
            output(rows[first : first + ROWS]).double(),
            wanted[first : first + ROWS],
            reduction="none",
            ignore_index=IGNORED,
        )
        for first in range(0, len(rows), ROWS)
    ]
    return (torch.cat(found) if found else rows.new_zeros(0).double()).view(targets.shape)


Gradients = tuple[Tensor, Tensor, Tensor]


def _total(rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, grads: Gradients | None) -> Tensor:
    """Return the loss; the derivatives of the rows [N, H], the weight and the bias are written to `grads`."""
    total = torch.zeros((), dtype=torch.float64, device=rows.device)
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        wanted = targets[part, None]
        log_p = torch.log_softmax(torch.addmm(bias, rows[part], weight.t()), 1)
        chosen = log_p.gather(1, wanted)
        total -= chosen.double().sum()
        if grads is not None:  # d loss / d logits = p - 1[target]
            slope = log_p.exp_().scatter_add_(1, wanted, torch.full_like(chosen, -1))
            torch.mm(slope, weight, out=grads[0][part])
            grads[1].addmm_(slope.t(), rows[part])
            grads[2].add_(slope.sum(0))
    return total.to(rows.dtype)


class _TotalLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        grads = torch.empty_like(rows), torch.zeros_like(weight), torch.zeros_like(bias)
        total = _total(rows, weight, bias, targets, grads)
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return *(part * grad for part in ctx.saved_tensors), None
