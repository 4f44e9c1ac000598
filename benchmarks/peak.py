"""The most memory that some work holds at a time, on a GPU or by torch's allocator on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def peak_of(work: Callable[[], object], device: torch.device) -> int:
    """Bytes, above those that are in use before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return int(torch.cuda.max_memory_allocated(device) - before)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        work()
    assert watched.profiler is not None
    events = watched.profiler.kineto_results.events()
    held = most = 0
    for event in sorted((one for one in events if one.name() == "[memory]"), key=lambda one: one.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most
