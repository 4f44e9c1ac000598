"""States of networks as plain tensors, for files: everything that a state holds, and nothing is unpickled.

The structure is kept as JSON in a tensor of bytes. The chart of a nondeterministic stack is kept only as far
back as later steps can see. What is restored has the same numbers at the same places, so a network continues
exactly as it would have.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.networks.ragged import UnreadState
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.nondeterministic import Chart, DeviceChart, PackedChart
from ndstack.stacks import State

STRUCTURE = "structure"
_WRONG = (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError, MemoryError)


def pack_state(state: NetworkState) -> dict[str, Tensor]:
    """Return the tensors of a state by name, its structure among them."""
    tensors: dict[str, Tensor] = {}
    structure = _describe(state, tensors)
    text = json.dumps(structure).encode()
    return {STRUCTURE: torch.frombuffer(bytearray(text), dtype=torch.uint8), **tensors}


def unpack_state(tensors: Mapping[str, Tensor]) -> NetworkState:
    """Return the state that `pack_state` took apart; its tensors are on the CPU."""
    try:
        structure = json.loads(bytes(tensors[STRUCTURE].tolist()))
        state = _restore(structure, tensors)
    except _WRONG as error:
        raise NdstackError(f"these tensors are not the state of a network: {error!r}") from None
    if not isinstance(state, NetworkState):
        raise NdstackError(f"the state of a {type(state).__name__} given, expected that of a network")
    return state


def _describe(value: object, tensors: dict[str, Tensor]) -> dict[str, object]:
    """Return a value as JSON; its tensors go to `tensors`."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(value, tuple):
        return {"tuple": [_describe(part, tensors) for part in value]}
    if isinstance(value, UnreadState):
        value = value.read()
    if isinstance(value, State | NetworkState):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        own = {name: _describe(part, tensors) for name, part in fields.items()}
        return {"state": type(value).__name__, "fields": own}
    if isinstance(value, DeviceChart):
        numbers = {name: _describe(part, tensors) for name, part in value.pack().items()}
        return {"device_chart": {"automaton": value.store.automaton, "time": value.time, **numbers}}
    if isinstance(value, Chart) and value.only_in_log_space:
        return {"value": None}  # it is made again from the history
    if isinstance(value, Chart):
        packed = value.pack()
        parts = {"columns": packed.columns, "lost": packed.lost}
        described: dict[str, object] = {name: _describe(part, tensors) for name, part in parts.items()}
        described["times"] = [_describe(part, tensors) for part in packed.times]
        return {"chart": packed._asdict() | described}
    if value is None or isinstance(value, int | float | str):
        return {"value": value}
    raise NdstackError(f"a state with a {type(value).__name__} in it cannot be written to a file")


def _restore(structure: Any, tensors: Mapping[str, Tensor]) -> Any:
    if "tensor" in structure:
        return tensors[structure["tensor"]].clone()
    if "tuple" in structure:
        return tuple(_restore(part, tensors) for part in structure["tuple"])
    if "state" in structure:
        kind = {kind.__name__: kind for kind in _kinds()}[structure["state"]]
        fields = dict(structure["fields"])
        if "memory" in fields:  # files from before the chart was one value
            fields["chart"] = fields.pop("memory") if "chart" in fields["memory"] else {"value": None}
            fields.pop("place", None)
        restored = {name: _restore(part, tensors) for name, part in fields.items()}
        _check_batch(kind, restored.values())
        return kind(**restored)
    if "device_chart" in structure:
        parts = dict(structure["device_chart"])
        automaton, time = parts.pop("automaton"), parts.pop("time")
        return DeviceChart.unpack(
            automaton, time, {name: _restore(part, tensors) for name, part in parts.items()}
        )
    if "chart" in structure:
        chart = structure["chart"]
        columns, lost = _restore(chart["columns"], tensors), _restore(chart["lost"], tensors)
        times = [_restore(part, tensors) for part in chart["times"]]
        return Chart.unpack(
            PackedChart(chart["layout"], chart["bottom_fix"], chart["time"], columns, times, lost)
        )
    return structure["value"]


def _check_batch(kind: type[object], parts: Iterable[object]) -> None:
    """Raise an error unless all tensors of a state begin with the dimension of one batch."""
    members = (one for part in parts for one in (part if isinstance(part, tuple) else (part,)))
    sizes = {one.shape[:1] for one in members if isinstance(one, Tensor)}
    if len(sizes) > 1 or torch.Size() in sizes:
        raise NdstackError(f"the tensors of a {kind.__name__} are not of one batch")


def _kinds() -> Iterator[type[State] | type[NetworkState]]:
    """Yield all kinds of states."""
    waiting: list[type[State] | type[NetworkState]] = [State, NetworkState]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        yield kind
