"""Batches of strings of different lengths, filled up on the right: lengths, masks, packed sequences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ndstack.errors import NdstackError
from ndstack.ops.runtime import in_graph

Lengths = Tensor | Sequence[int]
"""How many symbols of each string of a batch count, [B]."""


def check_lengths(lengths: object, batch: int, longest: int) -> list[int]:
    """Return the lengths; raise an error in one line unless there are `batch`, of 0 to `longest`."""
    given: object = lengths.tolist() if isinstance(lengths, Tensor) else lengths
    sizes = list(given) if isinstance(given, list | tuple) else None
    if sizes is None or not all(type(size) is int for size in sizes):
        what = f"a tensor of {lengths.dtype}" if isinstance(lengths, Tensor) else repr(lengths)[:100]
        raise NdstackError(f"{what} given as lengths, expected whole numbers, one for each string")
    if len(sizes) != batch:
        raise NdstackError(f"{len(sizes)} lengths given for a batch of {batch}, expected one for each string")
    wrong = [size for size in sizes if not 0 <= size <= longest]
    if wrong:
        raise NdstackError(
            f"a string of length {wrong[0]} given in a batch of {longest} positions, expected 0 to {longest}"
        )
    return sizes


def _check_tensor(lengths: Tensor, batch: int, longest: int) -> Tensor:
    return torch.tensor(check_lengths(lengths, batch, longest), dtype=torch.long)


def _fake_check(lengths: Tensor, batch: int, longest: int) -> Tensor:
    return lengths.new_empty(lengths.shape, dtype=torch.long)


in_graph.define("lengths(Tensor given, SymInt batch, SymInt longest) -> Tensor", _check_tensor, _fake_check)


def check_lengths_in_graph(lengths: Tensor, batch: int, longest: int) -> Tensor:
    """Return the lengths, checked as `check_lengths` does, where `torch.compile` traces the call."""
    found: Tensor = torch.ops.ndstack.lengths(lengths, batch, longest)
    return found


def _as_tensor(lengths: Lengths, device: torch.device) -> Tensor:
    return torch.as_tensor(lengths, dtype=torch.long, device=device)


def padding_mask(lengths: Lengths, longest: int, device: torch.device) -> Tensor:
    """Return which positions are padding, [B, longest]."""
    return torch.arange(longest, device=device) >= _as_tensor(lengths, device)[:, None]


def without(padding: Tensor, x: Tensor) -> Tensor:
    """Return x [B, n, ...] with zeros in place of padding [B, n], whatever stands there, nan included."""
    return x.masked_fill(padding.view(*padding.shape, *(1,) * (x.dim() - 2)), 0)


def at_ends(x: Tensor, lengths: Lengths, first: Tensor) -> Tensor:
    """Return the last of each string, [B, ...], of x [B, n, ...]; for empty strings, the `first` [B, ...]."""
    before = torch.cat([first[:, None].to(x.dtype), x], dim=1)
    return before[torch.arange(x.shape[0], device=x.device), _as_tensor(lengths, x.device)]


def reverse(x: Tensor, lengths: Lengths | None) -> Tensor:
    """Return x [B, n, ...] with every string read from its end, padding left where it is."""
    if lengths is None:
        return x.flip(1)
    places = torch.arange(x.shape[1], device=x.device)
    ends = _as_tensor(lengths, x.device)[:, None]
    return reorder(x, torch.where(places < ends, ends - 1 - places, places))


def symbols_first(ignored: Tensor) -> Tensor | None:
    """Return the order of positions, [B, n], that puts those which are ignored [B, n] last; None if they are.

    The order of all others stays as it is.
    """
    if not bool((ignored[:, :-1] & ~ignored[:, 1:]).any()):
        return None
    return ignored.long().argsort(dim=1, stable=True)


def reorder(x: Tensor, order: Tensor) -> Tensor:
    """Return x [B, n, ...] with its positions in another order [B, n]."""
    return x[torch.arange(x.shape[0], device=x.device)[:, None], order]


def unpack(packed: PackedSequence) -> tuple[Tensor, list[int]]:
    """Return a packed batch as [B, n, size], in the order in which it was packed, and its lengths."""
    padded, lengths = pad_packed_sequence(packed, batch_first=True)
    return padded, lengths.tolist()


def repack(output: Tensor, lengths: Sequence[int], like: PackedSequence) -> PackedSequence:
    """Return outputs [B, n, size] packed as another batch was."""
    sizes = torch.tensor(lengths)
    if like.sorted_indices is not None:
        output, sizes = output[like.sorted_indices], sizes[like.sorted_indices.cpu()]
    data = pack_padded_sequence(output, sizes, batch_first=True).data
    return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)


def transposed(x: object) -> Tensor:
    """Return an input [n, B, size] as [B, n, size]."""
    if not isinstance(x, Tensor) or x.dim() != 3:
        what = f"shape {list(x.shape)}" if isinstance(x, Tensor) else f"type {type(x).__name__}"
        raise NdstackError(
            f"input of {what} given, expected [length, batch, size], since batch_first is False"
        )
    return x.transpose(0, 1)
