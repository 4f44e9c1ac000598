"""Two processes over loopback: DDP and FSDP give the gradients of one process with the whole batch."""

import copy
import socket
import warnings

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from ndstack.nn import models

WORDS = (["abb", "a"], ["ba", ""])
SMALL = {"d_model": 4, "heads": 2, "feedforward": 4, "dropout": 0.0, "num_layers": 2}


def loss(model, words, boundary):
    """The mean of -log p, from a call of the model itself."""
    symbols, lengths = words
    logits, state = model(symbols, lengths=lengths)
    assert state.batch_size == 2
    total = logits.new_zeros(())
    for row, length in enumerate(lengths.tolist()):
        log_p = logits[row, : length + 1].log_softmax(-1)
        targets = torch.tensor([*symbols[row, :length].tolist(), boundary])
        total = total - log_p.gather(1, targets[:, None]).sum()
    return total / 2


def work(rank, port):
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    for name, options in (("rns-2-2", {"hidden": 4}), ("tf+sup-2", SMALL)):
        model = models.build(name, ("a", "b"), **options)
        words = model.encode(WORDS[rank])
        whole = copy.deepcopy(model)
        whole.cross_entropy([*WORDS[0], *WORDS[1]]).backward()
        replicated = DistributedDataParallel(copy.deepcopy(model))
        loss(replicated, words, model.boundary).backward()
        sharded = copy.deepcopy(model)
        fully_shard(sharded.backbone)
        fully_shard(sharded)
        loss(sharded, words, model.boundary).backward()
        parts = (whole, replicated.module, sharded)
        for expected, one, other in zip(*(part.parameters() for part in parts), strict=True):
            torch.testing.assert_close(one.grad, expected.grad, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(other.grad.full_tensor(), expected.grad, rtol=1e-4, atol=1e-6)
    dist.destroy_process_group()


@pytest.mark.compiled
def test_data_parallel_and_fully_sharded():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    spawn(work, (port,), nprocs=2)
