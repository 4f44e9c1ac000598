"""Masks as torch's layers have them: True, or -inf, where nothing is seen.

Masks of Hugging Face's transformers are the other way round, 1 where something is seen, so whole numbers are
refused, as torch does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.ops.runtime import in_graph

_EXPECTED = {
    "key_padding_mask": "True where there is padding, as in key_padding_mask=attention_mask == 0",
    "attn_mask": "True where nothing is seen",
}


def hidden(mask: Tensor, name: str = "key_padding_mask") -> Tensor:
    """Return a mask as one of truth values; raise an error in one line if it holds more than 0 and -inf.

    Args:
        mask: of truth values, or of the numbers that torch adds to attention weights.
        name: what it is called.
    """
    if mask.dtype == torch.bool:
        return mask
    found = mask == -torch.inf
    if not mask.is_floating_point() or not bool((found | (mask == 0)).all()):
        numbers = " with numbers besides 0 and -inf" if mask.is_floating_point() else ""
        raise NdstackError(
            f"{name} of {mask.dtype}{numbers} given, expected truth values, {_EXPECTED[name]}; or 0 and -inf"
        )
    return found


def check_causal(mask: Tensor | None, n: int) -> None:
    """Raise an error in one line unless a mask is the causal one."""
    if mask is None:
        return
    unseen = hidden(mask, "attn_mask")
    causal = torch.ones(n, n, dtype=torch.bool, device=mask.device).triu(1)
    if unseen.shape != causal.shape or not torch.equal(unseen, causal):
        raise NdstackError(
            f"an attn_mask of shape {list(mask.shape)} that is not causal given, expected None or "
            f"torch.nn.Transformer.generate_square_subsequent_mask({n}): a stack sees all that is before it"
        )


def _checked(mask: Tensor) -> Tensor:
    check_causal(mask, mask.shape[0])
    return torch.zeros(1, mask.shape[0], dtype=torch.bool)


in_graph.define(
    "causal(Tensor mask) -> Tensor",
    _checked,
    lambda mask: torch.empty(1, mask.shape[0], dtype=torch.bool),
)
in_graph.define(
    "padding(Tensor mask) -> Tensor",
    lambda mask: hidden(mask).clone(),  # an operation returns no input of its own
    lambda mask: torch.empty_like(mask, dtype=torch.bool),
)


def check_causal_in_graph(mask: Tensor) -> Tensor:
    """Check a mask [n, n] whenever the graph that this is part of runs; return positions to ignore, none."""
    found: Tensor = torch.ops.ndstack.causal(mask)
    return found


def hidden_in_graph(mask: Tensor) -> Tensor:
    """Return what `hidden` does of a padding mask, checked whenever the graph that this is part of runs."""
    if mask.dtype == torch.bool:
        return mask
    found: Tensor = torch.ops.ndstack.padding(mask)
    return found
