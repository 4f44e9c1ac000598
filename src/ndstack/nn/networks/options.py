"""Options of networks that must fit together."""

from __future__ import annotations

from ndstack.errors import NdstackError
from ndstack.stacks.base import AnyStack, Stack


def check_recurrent(
    hidden_size: int,
    stack: AnyStack | None,
    push_hidden: bool,
    reading_layers: int,
    output_reading: bool,
) -> None:
    """Raise an `NdstackError` unless the options fit together."""
    if stack is not None and not isinstance(stack, Stack):
        raise NdstackError(f"{stack!r} given as the stack, expected a Stack of ndstack.stacks, or None")
    if stack is None and (push_hidden or reading_layers or output_reading):
        raise NdstackError("push_hidden, reading_layers and output_reading need a stack, but none is given")
    if push_hidden and stack is not None and stack.push_size != hidden_size:
        raise NdstackError(
            f"the stack holds vectors of size {stack.push_size}, expected the hidden size {hidden_size}, "
            "since hidden states are pushed"
        )


def unnormalized(stack: AnyStack | None) -> AnyStack:
    """Return a stack that reads weights of runs (`ndstack.nn.networks.unnormalized`)."""
    from ndstack.nn.networks.unnormalized import Unnormalized

    if stack is None:
        raise NdstackError("normalize_reading=False needs a nondeterministic stack, but none is given")
    return Unnormalized(stack)
