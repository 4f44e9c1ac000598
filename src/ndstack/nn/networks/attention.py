"""Causal attention sublayer functions: stack attention and scaled dot-product attention (chapter 10).

Both take the normalised inputs x_1, ..., x_n of a sublayer to y_1, ..., y_n, where y_t depends on
x_1, ..., x_t only, and both carry a state from one call to the next, so that a sequence can be read
whole, in chunks or symbol by symbol. Layer normalisation, dropout and the residual connection
around them belong to the layer that owns them (`ndstack.nn.networks.transformer`).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ndstack.errors import NdstackError, check_flag, check_size, refuse
from ndstack.nn.networks import graphs
from ndstack.nn.networks.backbone import check_dtype, check_input
from ndstack.nn.networks.masks import check_causal, check_causal_in_graph, hidden, hidden_in_graph
from ndstack.nn.networks.padding import reorder, symbols_first, transposed, without
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.attention import attend
from ndstack.ops.runtime.tracing import Recordable, constant, untraced
from ndstack.stacks.base import AnyStack, Stack, State
from ndstack.stacks.state import Device

StateT = TypeVar("StateT")


class Attention(Recordable, torch.nn.Module, ABC, Generic[StateT]):
    """What an attention sublayer does; called with x [B, n, d_model] and the state of an earlier call."""

    d_model: int

    def start(self, batch_size: int, *, dtype: torch.dtype | None = None, device: Device = None) -> StateT:
        """Return what is carried before the first input.

        Args:
            batch_size: how many sequences.
            dtype: of the inputs; that of the parameters if not given.
            device: where; that of the parameters if not given.
        """
        batch_size = check_size("batch_size", batch_size, 0)
        like = next(self.parameters())
        return self._start(batch_size, dtype or like.dtype, device or like.device)

    @abstractmethod
    def _start(self, batch_size: int, dtype: torch.dtype, device: torch.device | str) -> StateT:
        """`start`, with nothing left open."""


_INSTEAD = {
    "num_heads": "it has one head; for several, use several layers",
    "heads": "it has one head; for several, use several layers",
    "embed_dim": "d_model is the size of its inputs",
    "dropout": "put a torch.nn.Dropout behind it",
    "bias": "its layers have no biases",
    "lengths": "give key_padding_mask=torch.arange(n) >= lengths[:, None], which is True at padding",
    "attention_mask": "give key_padding_mask=attention_mask == 0, which is True at padding",
    "average_attn_weights": "stacks have no attention weights in common",
}
"""What to do instead of arguments that `torch.nn.MultiheadAttention` or other networks have."""


class StackAttention(Attention[State]):
    """Attention whose distribution over past inputs is that of the top of a stack (section 10.2).

    At each step the stack gets

        a_t = W_a x_t        (raw logits; a softmax over them, if any, is part of the stack)
        v_t = x_t            or W_v x_t, if the stack's vectors have another size than x_t

    and its reading r_t *after* the step is the output

        y_t = r_t            or W_y r_t, if a reading has another size than x_t.

    The text says "learned linear projection" where it says "affine transformation" of the output
    layer, so none of the three has a bias (nor have they in the public code of the later paper on
    stack attention), and v_t is not squashed. A stack without vectors gets actions only. The bottom
    vector of a nondeterministic stack is a parameter of the stack.

    It can stand in for `self_attn` of `torch.nn.TransformerEncoderLayer` and `TransformerDecoderLayer`, which
    call it with query, key and value. It reads from left to right there too, with or without a mask.

    Args:
        d_model: the size of x_t and y_t.
        stack: any stack of `ndstack.stacks`; `Superposition` and `Nondeterministic` with vectors
            are the dissertation's.
        always_project: project v_t and r_t even where sizes agree, as that public code does.
        exp_pushes: push exp(v_t) in place of v_t, as that public code does.
        batch_first: whether inputs and outputs are [B, n, d_model]; if not, [n, B, d_model], as layers of
            torch have them unless they are told otherwise.
        device: the device of the parameters; torch's default if not given.
        dtype: the dtype of the parameters; torch's default if not given.
        unsupported: other arguments of `torch.nn.MultiheadAttention`, which cause an error that says what to
            do instead.
    """

    _qkv_same_embed_dim, in_proj_bias, num_heads = False, None, 1
    """What layers of torch look at before they compute scaled dot-product attention on their own."""

    def __init__(
        self,
        d_model: int,
        stack: AnyStack,
        *,
        always_project: bool = False,
        exp_pushes: bool = False,
        batch_first: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **unsupported: object,
    ) -> None:
        super().__init__()
        refuse(unsupported, StackAttention, _INSTEAD)
        d_model = check_size("d_model", d_model)
        if not isinstance(stack, Stack):
            raise NdstackError(f"{stack!r} given as the stack, expected a Stack of ndstack.stacks")
        self.always_project = check_flag("always_project", always_project)
        self.exp_pushes = check_flag("exp_pushes", exp_pushes)
        self.d_model, self.stack, self.batch_first = d_model, stack, check_flag("batch_first", batch_first)

        def projection(given: int, wanted: int) -> torch.nn.Module:
            if given == wanted and not always_project:
                return torch.nn.Identity()
            return torch.nn.Linear(given, wanted, bias=False)

        self.actions = torch.nn.Linear(d_model, stack.action_size, bias=False)
        self.pushed = projection(d_model, stack.push_size) if stack.push_size else None
        self.output = projection(stack.reading_size, d_model)
        self.to(device=device, dtype=dtype)

    def _start(self, batch_size: int, dtype: torch.dtype, device: torch.device | str) -> State:
        """Fresh stacks, in float32 or better."""
        dtype = torch.promote_types(dtype, torch.float32)
        state: State = self.stack.start(batch_size, dtype=dtype, device=device)
        return state

    def controls(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the action logits [B, n, A] and the vectors [B, n, m], or None, that the stack gets."""
        pushed = None if self.pushed is None else self.pushed(x)
        return self.actions(x), pushed.exp() if self.exp_pushes and pushed is not None else pushed

    def forward(
        self,
        x: Tensor,
        state: State | Tensor | None = None,
        value: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        is_causal: bool = False,
        **unsupported: object,
    ) -> tuple[Tensor, State | None]:
        """Return y_1..y_n, [B, n, d_model], and the state afterwards.

        Args:
            x: [B, n, d_model].
            state: the stacks after the inputs before these; fresh ones if not given. Layers of torch give the
                key here, which must be x.
            value: x once more, or None.
            key_padding_mask: [B, n], True (or -inf) where there is padding, at any side: no step is made
                there, and y is 0. No state is taken or returned then.
            attn_mask: None or a causal mask [n, n]: stacks see what is before them, whatever is said.
            need_weights: False; there are none that all stacks have.
            is_causal: a hint of layers of torch, which changes nothing.
            unsupported: other arguments, which cause an error that says what to do instead.
        """
        refuse(unsupported, StackAttention, _INSTEAD)
        if torch.compiler.is_dynamo_compiling():
            if self._enters_graph(x, state, value, key_padding_mask, attn_mask) and not need_weights:
                y, last = self._read_in_graph(x, key_padding_mask, attn_mask)
                return y, None if isinstance(state, Tensor) or key_padding_mask is not None else last
            return untraced()(  # at once, so that it is one break in the graph
                self.forward,
                *(x, state, value),
                key_padding_mask=key_padding_mask,
                attn_mask=attn_mask,
                need_weights=need_weights,
            )
        called_as_self_attn = isinstance(state, Tensor)
        if isinstance(state, Tensor):
            if state is not x or (value is not None and value is not x):
                raise NdstackError(
                    "stack attention attends to its own input: give it as query, key and value"
                )
            state = None
        if need_weights:
            raise NdstackError("need_weights=True given, but stacks have no attention weights in common")
        x = x if self.batch_first else transposed(x)
        check_input(x, self.d_model, None if state is None else state.batch_size)
        check_dtype(x, self)
        check_causal(attn_mask, x.shape[1])
        if key_padding_mask is None:
            y, after = self._read(x, state)
        elif state is not None:
            raise NdstackError("both a state and a key_padding_mask given, expected one of them")
        else:
            y, after = self._read_masked(x, key_padding_mask), None
        return y if self.batch_first else y.transpose(0, 1), None if called_as_self_attn else after

    def _read(self, x: Tensor, state: State | None) -> tuple[Tensor, State]:
        if state is None:
            state = self.start(x.shape[0], dtype=x.dtype, device=x.device)
        readings, state = self.stack(*self.controls(x), state)
        y: Tensor = self.output(readings.to(x.dtype))
        return y, state

    def _enters_graph(
        self, x: Tensor, state: object, value: Tensor | None, padding: Tensor | None, mask: Tensor | None
    ) -> bool:
        """Return whether `torch.compile`, which is tracing, makes this call a part of its graph."""
        alone = state is None and value is None
        if not (alone or (state is x and value is x)):
            return False
        ready = constant()(graphs.attention, self)  # first, since whatever else is asked has to be guarded
        if not ready or not graphs.fits(x, self.d_model, self.actions.weight):
            return False
        batch, n = x.shape[:2] if self.batch_first else (x.shape[1], x.shape[0])
        return graphs.mask_fits(padding, batch, n) and graphs.mask_fits(mask, n, n)

    def _read_in_graph(self, x: Tensor, padding: Tensor | None, mask: Tensor | None) -> tuple[Tensor, State]:
        """Do what `forward` does from the start. Steps in padding, wherever it is, change nothing."""
        x = x if self.batch_first else x.transpose(0, 1)
        ignored = None if padding is None else hidden_in_graph(padding)
        if mask is not None:
            ignored = (
                check_causal_in_graph(mask) if ignored is None else ignored | check_causal_in_graph(mask)
            )
        if ignored is None:
            readings, after = self.stack.scan_in_graph(*self.controls(x))
            y: Tensor = self.output(readings)
        else:
            actions, pushed = self.controls(without(ignored, x))
            idle = torch.tensor(self.stack.idle, dtype=x.dtype)
            readings, after = self.stack.scan_in_graph(
                torch.where(ignored[:, :, None], idle, actions), pushed
            )
            y = without(ignored, self.output(readings))
        return y if self.batch_first else y.transpose(0, 1), after

    def _read_masked(self, x: Tensor, mask: Tensor) -> Tensor:
        """Read the strings alone: padding is moved to the right, where nothing comes after it."""
        if mask.shape != x.shape[:2]:
            raise NdstackError(
                f"key_padding_mask of shape {list(mask.shape)} given, expected {list(x.shape[:2])}"
            )
        ignored = hidden(mask)
        order = symbols_first(ignored)
        x = without(ignored, x)
        y, _ = self._read(x if order is None else reorder(x, order), None)
        return without(ignored, y if order is None else reorder(y, order.argsort(dim=1)))

    def __getattr__(self, name: str) -> Any:
        if name == "in_proj_weight":  # asked for by a torch.nn.TransformerEncoder that wants nested tensors
            raise _NotThereError(
                "stack attention cannot read nested tensors; make the torch.nn.TransformerEncoder with "
                "enable_nested_tensor=False"
            )
        return super().__getattr__(name)


class _NotThereError(NdstackError, AttributeError):
    """An attribute that torch's own attention has."""


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionState(NetworkState):
    """The key/value cache of `DotProductAttention` after t inputs."""

    keys: Tensor
    """[B, heads, t, d_model / heads]."""

    values: Tensor
    """[B, heads, t, d_model / heads]."""

    @property
    def batch_size(self) -> int:
        """The number of sequences."""
        return self.keys.shape[0]

    @property
    def time(self) -> int:
        """t, the number of inputs read so far."""
        return self.keys.shape[2]

    def until(self, time: int) -> AttentionState:
        """Return the cache after the first inputs only."""
        return AttentionState(self.keys[:, :, :time], self.values[:, :, :time])


class DotProductAttention(Attention[AttentionState]):
    """Causal multi-head scaled dot-product self-attention (eq. 10.1, with i <= t).

    Each head has queries, keys and values of size d_model / heads; they and the output are affine
    functions, as in `torch.nn.MultiheadAttention`, whose parameters have the same shapes.

    Args:
        d_model: the size of x_t and y_t.
        heads: how many heads; d_model must be a multiple of it.
        dropout: the rate of dropout on the attention weights.
    """

    def __init__(self, d_model: int, heads: int = 4, *, dropout: float = 0.0) -> None:
        super().__init__()
        d_model, heads = check_size("d_model", d_model), check_size("heads", heads)
        if d_model % heads:
            raise NdstackError(f"d_model is {d_model}, expected a positive multiple of heads, {heads}")
        self.d_model, self.heads, self.dropout = d_model, heads, check_dropout(dropout)
        self.query_key_value = torch.nn.Linear(d_model, 3 * d_model)
        self.output = torch.nn.Linear(d_model, d_model)

    def extra_repr(self) -> str:
        """Return what `print` shows."""
        return f"heads={self.heads}, dropout={self.dropout}"

    def _start(self, batch_size: int, dtype: torch.dtype, device: torch.device | str) -> AttentionState:
        """Return an empty cache."""
        size = (batch_size, self.heads, 0, self.d_model // self.heads)
        empty = torch.empty(size, dtype=dtype, device=device)
        return AttentionState(empty, empty)

    def forward(self, x: Tensor, state: AttentionState | None = None) -> tuple[Tensor, AttentionState]:
        """Return y_1..y_n, [B, n, d_model], and the state afterwards.

        Args:
            x: [B, n, d_model].
            state: the cache after the inputs before these; empty if not given.
        """
        check_input(x, self.d_model, None if state is None else state.batch_size)
        check_dtype(x, self)
        batch, n, _ = x.shape
        self._check_state(state, x)
        parts = self.query_key_value(x).view(batch, n, 3, self.heads, self.d_model // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        if state is None or not state.time:
            attended = attend(parts, dropout)
        else:
            keys = torch.cat([state.keys, keys], dim=2)
            values = torch.cat([state.values, values], dim=2)
            mask = _mask(state.time, n, x.device)
            found = scaled_dot_product_attention(queries, keys, values, mask, dropout_p=dropout)
            attended = found.transpose(1, 2).reshape(batch, n, self.d_model)
        y: Tensor = self.output(attended)
        return y, AttentionState(keys, values)

    def _check_state(self, state: AttentionState | None, x: Tensor) -> None:
        """Raise an error in one line unless the state is a cache of this sublayer."""
        if state is None:
            return
        size = (x.shape[0], self.heads, state.keys.shape[2:3], self.d_model // self.heads)
        for tensor in (state.keys, state.values):
            if tensor.shape != (*size[:2], *size[2], size[3]) or tensor.device != x.device:
                raise NdstackError(
                    f"a cache of shape {list(tensor.shape)} on {tensor.device} given, expected "
                    f"[{x.shape[0]}, {self.heads}, past, {size[3]}] on {x.device}; use start() of this layer"
                )


def _mask(past: int, n: int, device: torch.device) -> Tensor | None:
    """Return which of past + n keys each of n queries may see, [n, past + n]; a single query sees all keys.

    The function of torch aligns its own causal mask with the first key, which is right only without a past.
    """
    if n == 1:
        return None
    return torch.ones(n, past + n, dtype=torch.bool, device=device).tril(past)


def check_dropout(rate: object) -> float:
    """Return the rate; raise an error in one line unless it is a probability less than 1."""
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.0 <= rate < 1.0:
        raise NdstackError(f"dropout is {rate!r}, expected at least 0 and less than 1")
    return rate
