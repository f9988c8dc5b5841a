"""DistributedDataParallel, unmodified: on any number of ranks it ends with the weights of one process that has all the
data; hooks and uneven inputs work. Prints "done" on rank 0."""

import pickle
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import lockstep._buckets
import lockstep.torch

dist.init_process_group(sys.argv[1])
rank, size = dist.get_rank(), dist.get_world_size()
STEPS, BATCH = 4, 12


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.BatchNorm1d(32), nn.Linear(32, 3)).double()


def data():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(STEPS * BATCH, 8, generator=generator).double(), torch.randint(
        0, 3, (STEPS * BATCH,), generator=generator)


def train(net, batches):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for inputs, labels in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    return [each.detach().clone() for each in net.parameters()]


def check_same_as_one_process():
    inputs, labels = data()
    # Without the statistics of batches, which are a rank's own.
    alone = train(model().eval(), zip(inputs.split(BATCH), labels.split(BATCH)))
    own = [tensor.split(BATCH // size) for tensor in (inputs, labels)]
    mine = list(zip(own[0][rank::size], own[1][rank::size]))
    net = DistributedDataParallel(model().eval(), bucket_cap_mb=0.001)
    together = train(net, mine)
    for expected, got in zip(alone, together):
        assert torch.allclose(expected, got, rtol=1e-12, atol=1e-14), (expected, got)
    check_same_everywhere(together)


def check_same_everywhere(weights):
    of_ranks = [None] * size
    dist.all_gather_object(of_ranks, [each.numpy().tobytes() for each in weights])
    assert all(each == of_ranks[0] for each in of_ranks)


def check_hooks():
    inputs, labels = data()
    loader_of = lambda: DataLoader(TensorDataset(inputs.float(), labels), batch_size=4,
                                   sampler=DistributedSampler(TensorDataset(inputs, labels), size, rank))
    for register in (
        lambda net: net.register_comm_hook(None, default_hooks.allreduce_hook),
        lambda net: net.register_comm_hook(None, default_hooks.fp16_compress_hook),
        lambda net: net.register_comm_hook(
            powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2),
            powerSGD_hook.powerSGD_hook),
    ):
        net = DistributedDataParallel(model().float(), bucket_cap_mb=0.0005)
        register(net)
        check_same_everywhere(train(net, loader_of()))


def check_uneven_inputs():
    inputs, labels = data()
    net = DistributedDataParallel(model().eval())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with net.join():
        for _ in range(2 + rank):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs[rank:rank + 4]), labels[rank:rank + 4]).backward()
            optimizer.step()
    assert any(not torch.equal(each, before) for each, before in zip(net.module.parameters(), model().parameters()))
    check_same_everywhere([each.detach() for each in net.parameters()])


def check_accumulation():
    inputs, labels = data()
    net, alone = DistributedDataParallel(model().eval()), model().eval()
    loss = lambda net, first: nn.functional.cross_entropy(net(inputs[first:first + 4]), labels[first:first + 4])
    with net.no_sync():
        loss(net, rank).backward()
    loss(net, rank + 4).backward()
    for each in range(size):
        ((loss(alone, each) + loss(alone, each + 4)) / size).backward()
    for got, expected in zip(net.parameters(), alone.parameters()):
        assert torch.allclose(got.grad, expected.grad, rtol=1e-12, atol=1e-14)


def check_sparse_gradients():
    def embeddings():
        torch.manual_seed(3)
        return nn.EmbeddingBag(20, 3, sparse=True, mode="sum").double()

    def step(net, words):
        net(words).square().mean().backward()
        with torch.no_grad():
            weight = next(net.parameters())
            weight -= weight.grad.to_dense()
        return weight.detach()

    words = torch.randint(0, 20, (size, 6), generator=torch.Generator().manual_seed(4))
    alone = step(embeddings(), words)
    together = step(DistributedDataParallel(embeddings()), words[rank : rank + 1])
    assert torch.allclose(alone, together, rtol=1e-12, atol=1e-14)
    check_same_everywhere([together])


def check_followed():
    """What lockstep asks a module after its forward passes, for messages, is no part of its pickle, no reason for them
    to fail, and not asked of other backends."""
    inputs, _ = data()
    net = DistributedDataParallel(model())
    assert b"lockstep" not in pickle.dumps(net)
    net._get_ddp_logging_data = None
    net(inputs).sum().backward()
    net = DistributedDataParallel(model())
    other = DistributedDataParallel(model(), process_group=dist.new_group(backend="gloo"))
    for each in (net, other):
        each(inputs).sum().backward()
    assert net in lockstep._buckets._buckets and other not in lockstep._buckets._buckets


check_same_as_one_process()
check_sparse_gradients()
check_hooks()
check_uneven_inputs()
check_accumulation()
check_followed()
if rank == 0:
    print("done")
dist.destroy_process_group()
