"""Kernels share a batch on torch's own threads, or on ordinary ones."""

import os
import subprocess
import sys
import threading
import time

import numba
import numpy as np
import pytest
import torch

from ndstack.errors import NdstackError
from ndstack.ops.runtime import short_calls, threads
from ndstack.ops.runtime.pointers import numbers


@pytest.fixture(params=["openmp", "pool"])
def way(request, monkeypatch):
    """Both ways to run the parts of a batch."""
    if request.param == "pool":
        monkeypatch.setattr(threads, "_openmp", None)
    elif threads._openmp is None:
        pytest.skip("torch has no OpenMP library that is known")
    monkeypatch.setattr(threads, "_wanted", 3)
    return request.param


def shared(batch, cost=1e9):
    """The parts that a batch is split into, and the threads that did them."""
    parts, who = [], set()
    meet = threading.Barrier(min(3, batch, 1 + int(cost / threads.WORTH_A_THREAD)), timeout=20)

    def work(first, last, name):
        assert name == "given"
        parts.append((first, last))
        who.add(threading.get_ident())
        meet.wait()

    threads.share(batch, work, cost, "given")
    return sorted(parts), who


@pytest.mark.parametrize(
    ("batch", "parts"), [(1, [(0, 1)]), (2, [(0, 1), (1, 2)]), (10, [(0, 3), (3, 6), (6, 10)])]
)
def test_every_sequence_is_done_once_and_all_parts_at_the_same_time(way, batch, parts):
    found, who = shared(batch)
    assert found == parts
    assert len(who) == len(parts)


def test_a_small_call_stays_on_one_thread(way):
    assert shared(10, cost=100.0) == ([(0, 10)], {threading.get_ident()})


@numba.njit(nogil=True)
def count(kind, at, first, last):
    """Add 1 to each number of its part, and to the number after all the size of the part."""
    found = numbers(at, 11, kind)
    for j in range(first, last):
        found[j] += 1
        found[10] = max(found[10], last - first)


@numba.njit(nogil=True)
def write(first, last, numbers, factor, sizes):
    """numbers = factor, and sizes = how many sequences its part has."""
    for b in range(first, last):
        numbers[b] = factor
        sizes[b] = last - first


@numba.njit(nogil=True)
def fail(first, last, numbers):
    """Fail in all parts but the first."""
    if first > 0:
        raise ValueError
    numbers[0] = 1


@numba.njit(nogil=True)
def answer(first, last, numbers):
    """Return something."""
    numbers[first:last] = 1
    return last


@pytest.mark.compiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_calls_of_compiled_code_are_shared_without_python(way, dtype, monkeypatch):
    if way == "openmp":
        monkeypatch.setattr(threads._openmp, "run", None)
    numbers, sizes = np.zeros(10, dtype), np.zeros(10, np.int64)
    threads.share(10, write, 1e9, numbers, 1.5, sizes)
    assert numbers.tolist() == [1.5] * 10
    assert sizes.tolist() == [3] * 6 + [4] * 4
    threads.share(10, write, 1e9, numbers, 2, sizes)  # an argument of another type
    assert numbers.tolist() == [2.0] * 10


@pytest.mark.compiled
def test_compiled_code_that_fails_in_a_part(way):
    with pytest.raises(MemoryError if way == "openmp" else ValueError):
        threads.share(10, fail, 1e9, np.zeros(10))


@pytest.mark.compiled
def test_compiled_code_that_returns_something_is_called_by_python(way):
    numbers = np.zeros(10)
    threads.share(10, answer, 1e9, numbers)
    assert numbers.all()


def test_small_calls_are_shared_to_compile_what_that_takes(way):
    with threads.sharing_everything():
        assert shared(2, cost=2.0)[0] == [(0, 1), (1, 2)]
    assert shared(10, cost=100.0)[0] == [(0, 10)]


@pytest.mark.compiled
@pytest.mark.parametrize("kind", [np.float32(0), np.float64(0)], ids=["float32", "float64"])
@pytest.mark.parametrize(("cost", "largest"), [(0, 10), (short_calls.WORTH_A_WAITING_THREAD, 5), (1e9, 4)])
def test_short_calls_are_shared_without_python(way, kind, cost, largest, monkeypatch):
    monkeypatch.setattr(short_calls, "_alone_until", 0.0)
    found = np.zeros(11, type(kind))
    short_calls.call(count, kind, found.ctypes.data, 10, cost)
    assert (found[:10] == 1).all()
    if way == "openmp":
        assert found[10] == largest


@pytest.mark.compiled
@pytest.mark.skipif(threads._openmp is None, reason="torch has no OpenMP library that is known")
def test_short_calls_are_not_shared_for_a_while_when_threads_have_to_wait(monkeypatch):
    """A machine on which every shared call takes a hundredth of a second."""
    shared = []

    def slowly(parts, *_):
        shared.append(parts)
        time.sleep(0.01)

    openmp = threads.openmp()
    monkeypatch.setattr(threads, "_wanted", 3)
    monkeypatch.setattr(openmp, "run_compiled", slowly)
    monkeypatch.setattr(short_calls, "_alone_until", 0.0)
    monkeypatch.setattr(short_calls, "PAUSE", 0.1)
    found = np.zeros(11)
    for _ in range(5):
        short_calls.call(count, np.float64(0), found.ctypes.data, 10, short_calls.WORTH_A_WAITING_THREAD)
    assert (found[:10] == 4).all()  # the first call was shared
    time.sleep(0.1)
    short_calls.call(count, np.float64(0), found.ctypes.data, 10, short_calls.WORTH_A_WAITING_THREAD)
    assert shared == [2, 2]


def test_what_a_part_raises_is_raised(way):
    def work(first, last):
        if last == 10:
            raise NdstackError("the last part failed")

    with pytest.raises(NdstackError, match="the last part failed"):
        threads.share(10, work)


@pytest.mark.skipif(threads._openmp is None, reason="torch has no OpenMP library that is known")
def test_parts_within_parts(monkeypatch):
    """Inside a parallel region OpenMP gives one thread, which then does all parts."""
    monkeypatch.setattr(threads, "_wanted", 3)
    done: list[int] = []

    def inner(first, last):
        done.append(last - first)

    threads.share(3, lambda first, last: threads.share(6, inner))
    assert sum(done) == 18


def test_several_threads_of_python_at_once(way):
    results = []

    def work(first, last):
        results.append(torch.ones(first + 1, last).sum().item())

    callers = [threading.Thread(target=threads.share, args=(9, work)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(20)
    assert sorted(results) == sorted(4 * [3.0, 4 * 6.0, 7 * 9.0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_has_threads_of_its_own():
    script = """if True:
        import os, warnings
        warnings.simplefilter("ignore")
        from ndstack.ops.runtime import threads
        threads.set_num_threads(2)
        done = []
        threads.share(4, lambda first, last: done.append((first, last)))
        child = os.fork()
        if child == 0:
            threads.share(4, lambda first, last: done.append((first, last)))
            os._exit(0 if sorted(done) == [(0, 2), (0, 2), (2, 4), (2, 4)] else 1)
        print(os.waitpid(child, 0)[1])
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr
