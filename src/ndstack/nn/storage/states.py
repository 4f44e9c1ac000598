"""States of networks as plain tensors, for files: everything a state holds, and nothing unpickled.

The structure goes along as JSON in a tensor of bytes. The chart of a nondeterministic stack is kept only as
far back as later steps can see; what is put back has the same numbers at the same places, so a network goes
on exactly as it would have.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ndstack.errors import NdstackError
from ndstack.nn.networks.state import NetworkState
from ndstack.ops.nondeterministic.cpu.carried import Filled, Place
from ndstack.ops.nondeterministic.cpu.layout import layout
from ndstack.ops.nondeterministic.cpu.scan import LIMITS, CpuChart
from ndstack.stacks import State

STRUCTURE = "structure"
_LARGEST = 10_000_000
_MOST_NUMBERS = 2**31
_WRONG = (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError, MemoryError)


def pack_state(state: NetworkState) -> dict[str, Tensor]:
    """The tensors of a state by name, its structure among them."""
    tensors: dict[str, Tensor] = {}
    structure = _describe(state, tensors)
    text = json.dumps(structure).encode()
    return {STRUCTURE: torch.frombuffer(bytearray(text), dtype=torch.uint8), **tensors}


def unpack_state(tensors: Mapping[str, Tensor]) -> NetworkState:
    """The state that `pack_state` took apart; its tensors are on the CPU."""
    try:
        structure = json.loads(bytes(tensors[STRUCTURE].tolist()))
        state = _restore(structure, tensors)
    except _WRONG as error:
        raise NdstackError(f"these tensors are not the state of a network: {error!r}") from None
    if not isinstance(state, NetworkState):
        raise NdstackError(f"the state of a {type(state).__name__} given, expected that of a network")
    return state


def _describe(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON; its tensors go to `tensors`."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous()
        return {"tensor": name}
    if isinstance(value, tuple):
        return {"tuple": [_describe(part, tensors) for part in value]}
    if isinstance(value, State | NetworkState):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        described: dict[str, Any] = {}
        place = fields.get("place")
        if isinstance(place, Place):
            described["memory"] = _describe_chart(fields.pop("memory"), fields.pop("place"), tensors)
        described |= {name: _describe(part, tensors) for name, part in fields.items()}
        return {"state": type(value).__name__, "fields": described}
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
        given: dict[str, Any] = {}
        if "chart" in fields.get("memory", {}):
            given["memory"], given["place"] = _restore_chart(fields.pop("memory")["chart"], tensors)
        given |= {name: _restore(part, tensors) for name, part in fields.items()}
        return kind(**given)
    return structure["value"]


def _describe_chart(memory: tuple[Tensor, ...], place: Place, tensors: dict[str, Tensor]) -> Any:
    """Those times of a chart that later steps can see."""
    at, time = place.layout, place.time
    kept = _kept(place)
    first = max(time - at.band, 0) if at.band else 0
    times = [part[:, first : time + 1] for part in memory[1:5]]
    return {
        "chart": {
            "layout": [at.states, at.symbols, at.times, at.band],
            "bottom_fix": place.bottom_fix,
            "time": time,
            "columns": _describe(memory[0][:, kept], tensors),
            "times": [_describe(part, tensors) for part in times],
            "lost": _describe(memory[5], tensors),
        }
    }


def _restore_chart(chart: Any, tensors: Mapping[str, Tensor]) -> tuple[tuple[Tensor, ...], Place]:
    place, fix = _restore_place(chart), chart["bottom_fix"]
    at, time = place.layout, place.time
    columns, lost = _restore(chart["columns"], tensors), _restore(chart["lost"], tensors)
    times = [_restore(source, tensors) for source in chart["times"]]
    batch, kept, first = len(columns), _kept(place), max(time - at.band, 0) if at.band else 0
    each = (batch, time + 1 - first, at.kinds)
    masses = (*each[:2], at.band + 1, at.kinds) if at.band else (batch, 0, 0, 0)
    expected = [(batch, kept.stop - kept.start), each, each, masses, each, (batch, at.kinds + 1)]
    given = [columns, *times, lost]
    if [tuple(tensor.shape) for tensor in given] != expected:
        raise ValueError(f"a chart of shapes {[list(tensor.shape) for tensor in given]}, not {expected}")
    wide = [columns.dtype if columns.dtype in LIMITS else torch.float64, *[torch.float64] * 5]
    if [tensor.dtype for tensor in given] != wide or batch * at.size > _MOST_NUMBERS:
        raise ValueError(
            f"a chart of {[str(tensor.dtype) for tensor in given]} and {batch} x {at.size} numbers"
        )
    new = CpuChart.empty(batch, at, fix, columns.dtype)
    new.columns[:, kept] = columns
    parts = (new.log_alpha, new.log_total, new.mass, new.floor)
    for target, source in zip(parts, times, strict=True):
        target[:, first : time + 1] = source
    new.lost.copy_(lost)
    nothing = columns.new_zeros(())
    links = nothing.expand(batch, at.size), nothing.expand(batch, at.ends)
    return (new.columns, *parts, new.lost, *links), place


def _restore_place(chart: Any) -> Place:
    """Where a chart is, in memory that is not larger than a chart of that time would have made it."""
    (states, symbols, times, band), time = chart["layout"], chart["time"]
    whole = all(type(number) is int and number < _LARGEST for number in (*chart["layout"], time))
    if (
        not whole
        or not 0 <= time < times <= max(2 * time, 128, 4 * (band + 1)) + 4
        or min(states, symbols) < 1
        or band < 0
        or states * symbols > 10_000
        or type(chart["bottom_fix"]) is not bool
    ):
        raise ValueError(f"a chart of {states} states and {symbols} symbols at time {time} of {times}")
    return Place(layout(states, symbols, times, band), chart["bottom_fix"], time, Filled(time))


def _kept(place: Place) -> slice:
    """The columns of a chart's times that are still seen, zeros between them included."""
    at, time = place.layout, place.time
    begin = int(at.start[max(time - at.band, 0)]) if at.band else 0
    return slice(begin, int(at.start[time] + at.kinds * at.stride[time]))


def _kinds() -> Iterator[type[State] | type[NetworkState]]:
    """All kinds of states."""
    waiting: list[Any] = [State, NetworkState]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        yield kind
