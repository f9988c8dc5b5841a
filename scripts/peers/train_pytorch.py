"""Trains lockstep's models with PyTorch (see measure.py). Modes:

flat          by hand: gradients in one tensor, summed by one MPI_Allreduce (mpi4py); start it with mpirun
flat-tuned    the same with weights in one tensor too, a fused optimizer, and channels_last for the convnet
threads       one process with as many threads as OMP_NUM_THREADS says, tuned likewise, without a sum
threads-compiled
              the same with torch.compile
ddp           DistributedDataParallel over gloo, as it comes
ddp-tuned     gradients live in the buckets, of the size that is fastest here, a static graph, a fused optimizer,
              channels_last
ddp-compiled  the same with torch.compile
ddp-fp16, ddp-bf16
              ddp-tuned with the communication hook that sends gradients in 16 bits
"""
import copy
import os
import time

import torch

from measure import arguments, measure, rank_and_size, report
from pytorch_models import count, loss_of, make_batches, make_model, make_optimizer

BUCKETS_MB = (1, 5, 25)  # the last is the default
HOOKS = {"ddp-fp16": "fp16_compress_hook", "ddp-bf16": "bf16_compress_hook"}
MODES = ("flat", "flat-tuned", "threads", "threads-compiled", "ddp", "ddp-tuned", "ddp-compiled", *HOOKS)


def place_in(flat, like):
    """Views of `flat` with the shapes and strides of the tensors `like`, one after the other."""
    offset = 0
    for tensor in like:
        yield flat.as_strided(tensor.shape, tensor.stride(), offset)
        offset += tensor.numel()


def fused():
    """What asks an optimizer to be fused; nothing before PyTorch 2.4, whose fused optimizers are for GPUs."""
    return {"fused": True} if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4) else {}


def flat_step(name, model, size, tuned):
    """A step that sums the gradients by hand."""
    from mpi4py import MPI

    parameters = list(model.parameters())
    gradients = torch.zeros(count(model))
    for parameter, place in zip(parameters, place_in(gradients, parameters)):
        parameter.grad = place
    trained = parameters
    if tuned:
        whole = torch.nn.Parameter(torch.empty(count(model)))
        for parameter, place in zip(parameters, place_in(whole.data, parameters)):
            place.copy_(parameter.data)
            parameter.data = place
        whole.grad = gradients
        trained = [whole]
    optimizer = make_optimizer(name, trained, **(fused() if tuned else {}))
    sums = gradients.numpy()

    def step(inputs, labels):
        gradients.zero_()
        loss = loss_of(model(inputs), labels)
        (loss / size).backward()
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, sums)
        optimizer.step()
        return loss.detach()
    return step


def threads_step(name, model, mode):
    compiled = torch.compile(model) if mode == "threads-compiled" else model
    optimizer = make_optimizer(name, model.parameters(), **fused())

    def step(inputs, labels):
        optimizer.zero_grad()
        loss = loss_of(compiled(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def best_bucket_mb(name, model, data):
    """The size with which a few steps are fastest on all ranks together."""
    times = []
    for megabytes in BUCKETS_MB:
        step = ddp_step(name, copy.deepcopy(model), "ddp-tuned", megabytes)
        for number in range(2):
            step(*data[number])
        begin = time.perf_counter()
        for number in range(2, 8):
            step(*data[number])
        times.append(time.perf_counter() - begin)
    total = torch.tensor(times)
    torch.distributed.all_reduce(total)
    return BUCKETS_MB[int(total.argmin())]


def ddp_step(name, model, mode, bucket_mb=BUCKETS_MB[-1]):
    tuned = mode != "ddp"
    replica = torch.nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=bucket_mb,
        **({"gradient_as_bucket_view": True, "static_graph": True} if tuned else {}))
    if mode in HOOKS:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        replica.register_comm_hook(None, getattr(default_hooks, HOOKS[mode]))
    if mode == "ddp-compiled":
        replica = torch.compile(replica)
    optimizer = make_optimizer(name, replica.parameters(), **(fused() if tuned else {}))

    def step(inputs, labels):
        optimizer.zero_grad()
        loss = loss_of(replica(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def main():
    mode, models = arguments(MODES)
    rank, size = rank_and_size()
    threads = mode.startswith("threads")
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]) if threads else 1)
    torch.set_num_interop_threads(1)
    flat, ddp = mode.startswith("flat"), mode.startswith("ddp")
    if ddp:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=size)
    for name in models:
        channels_last = name == "convnet" and mode not in ("flat", "ddp")
        model = make_model(name, channels_last)
        data = make_batches(name, rank, size, channels_last)
        if flat:
            step = flat_step(name, model, size, mode == "flat-tuned")
        elif threads:
            step = threads_step(name, model, mode)
        else:
            step = ddp_step(name, model, mode, *([best_bucket_mb(name, model, data)] if mode != "ddp" else []))
        measured = measure(name, lambda number: step(*data[number]))
        report(rank, "PyTorch", torch.__version__, mode, name, count(model), measured)
    if ddp:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
