"""Misuses and failures, one for each run: failing.py CASE [--timeout SECONDS] [--backend NAME]. The odd one is the last
rank; lines that a test looks for end with the comment that names them."""

import argparse
import ctypes
import datetime
import os
import signal
import sys
import threading
import time

import numpy
import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # registers "fake"
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import lockstep
import lockstep.torch

parser = argparse.ArgumentParser()
parser.add_argument("case")
parser.add_argument("--timeout", type=lambda text: datetime.timedelta(seconds=float(text)))
parser.add_argument("--backend", default="lockstep")
arguments = parser.parse_args()
case = arguments.case
if case == "one-thread":
    ctypes.CDLL(lockstep.torch._core.__file__).MPI_Init(None, None)  # for one thread
    try:
        dist.init_process_group(arguments.backend)
    except lockstep.Error:
        pass  # the second attempt says the same
dist.init_process_group(arguments.backend, timeout=arguments.timeout)
rank, size = dist.get_rank(), dist.get_world_size()
is_odd = rank == size - 1
mine = torch.ones(4)
dist.all_reduce(mine)


def caught(call):
    """The message of the MismatchError that `call` raises; afterwards the group works."""
    try:
        call()
    except lockstep.MismatchError as error:
        assert isinstance(error, RuntimeError)
        total = torch.ones(1)
        dist.all_reduce(total)
        assert total.item() == size
        return str(error)
    raise AssertionError("nothing was raised")


def say(text):
    """At once: lines of several ranks stay apart."""
    os.write(1, f"{rank}: {text}\n".encode())


def mismatch(usual, odd):
    say(caught(odd if is_odd else usual))


def usual():
    dist.all_reduce(mine)  # usual


MISMATCHES = {
    "another-collective": lambda: dist.broadcast(mine, 0),
    "another-shape": lambda: dist.all_reduce(torch.ones(5)),
    "another-type": lambda: dist.all_reduce(torch.ones(4, dtype=torch.float64)),
    "another-operation": lambda: dist.all_reduce(mine, dist.ReduceOp.MAX),
    "barrier": lambda: dist.barrier(),
    "coalesced": lambda: dist.all_reduce_coalesced([mine]),
}

if case in MISMATCHES:
    mismatch(usual, MISMATCHES[case])
elif case == "another-root":
    say(caught(lambda: dist.broadcast(mine, 1 if is_odd else 0)))
elif case == "parts":
    # The odd one has more for rank 0 than that expects.
    parts = [2 if is_odd else 1] + [1] * (size - 1)
    say(caught(lambda: dist.all_to_all_single(torch.ones(size), torch.ones(sum(parts)), [1] * size, parts)))
elif case == "lists":
    count = size - is_odd
    say(caught(lambda: dist.all_to_all([torch.empty(2)] * count, [torch.ones(2)] * count)))
elif case == "fake":
    # One that moves nothing, and does what NCCL does on the host.
    fake = dist.new_group(backend=lockstep.torch.around("fake"))
    dist.all_reduce(mine, group=fake)
    given = torch.ones((3 if is_odd else 2) * size)
    say(caught(lambda: dist.reduce_scatter_tensor(torch.ones(2), given, group=fake)))
elif case == "asynchronous":
    work = dist.all_reduce(mine, async_op=True) if not is_odd else dist.broadcast(mine, 0, async_op=True)
    say(caught(work.wait))
elif case in ("backward", "backward-hook"):
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)))
    if case == "backward-hook":
        net.register_comm_hook(None, default_hooks.allreduce_hook)
        net = torch.compile(net, backend="eager")
    for _ in range(2):  # the first puts parameters into buckets
        net(torch.ones(2, 3)).sum().backward()
    loss = net(torch.ones(2, 3)).sum()
    say(caught(usual if is_odd else lambda: loss.backward()))  # backward
elif case == "forked":
    if is_odd:
        child = os.fork()
        if child == 0:
            for call in (usual, dist.barrier, lambda: lockstep.all_reduce(numpy.ones(2))):
                try:
                    call()
                except lockstep.InvalidArgument as error:
                    say(error)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
    usual()
    assert mine[0] == size * size, mine
elif case == "no-send":
    if is_odd:
        dist.recv(mine, 0)  # no-send 1
    dist.barrier()  # no-send 2
elif case == "two-recvs":
    if rank == 0:
        dist.recv(mine, size - 1)  # two-recvs 1
    elif is_odd:
        dist.recv(mine, 0)  # two-recvs 2
    dist.barrier()
elif case == "two-groups":
    group = dist.new_group(list(range(size)))
    if is_odd:
        dist.all_reduce(mine, group=group)  # two-groups 1
        dist.all_reduce(mine)
    else:
        dist.all_reduce(mine)  # two-groups 2
        dist.all_reduce(mine, group=group)
elif case == "message":
    if rank == 0:
        say(caught(lambda: dist.send(torch.ones(3), size - 1)))
    elif is_odd:
        say(caught(lambda: dist.recv(torch.ones(2), 0)))
    else:
        dist.all_reduce(torch.ones(1))
elif case == "replicas":
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    lockstep.torch.check_replicas(net)
    if is_odd:
        net[1].running_var[1] += 1e-7
    try:
        lockstep.torch.check_replicas(net)
    except lockstep.DriftError as error:
        say(error)
elif case == "shards":
    torch.manual_seed(0)
    net = lockstep.torch.DataParallel(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)), shards=4,
                                      attest_every=2)
    own = next(iter(net.loader(torch.ones(16, 3), batch_size=8)))

    def step(loss_of=lambda shard: (net(shard).sum(), len(shard))):
        return net.backward(own, loss_of)  # step

    def refused(call):
        try:
            call()
        except (lockstep.DriftError, lockstep.InvalidArgument) as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError("nothing was raised")

    made = step()
    say("module: " + caught(lambda: lockstep.torch.DataParallel(torch.nn.Linear(3, 3 + is_odd))))
    say("loader: " + caught(lambda: net.loader(torch.ones(16 + is_odd, 3), batch_size=8)))
    say("end: " + caught(dist.barrier if is_odd else step))
    say("misuse: " + "; ".join(map(refused, (
        lambda: net(torch.ones(2, 3)).sum().backward(),
        lambda: net.backward([], None),
        lambda: step(lambda shard: net(shard).sum()),
        lambda: lockstep.torch.DataParallel(torch.nn.Linear(3, 3), shards=1),
        lambda: lockstep.torch.DataParallel(torch.nn.SyncBatchNorm(3)),
        lambda: lockstep.torch.DataParallel(torch.nn.Linear(3, 3).bfloat16()),
    ))))
    assert step() == made  # none of these has left a trace
    if is_odd:
        with torch.no_grad():
            net.module[0].bias[1] += 1e-7
    say("drift: " + refused(step))
    net = lockstep.torch.DataParallel(net.module, shards=4)  # of rank 0 again
    if is_odd:
        with torch.no_grad():
            net(torch.ones(4, 3))
    say("buffers: " + caught(lambda: net.backward(own, lambda shard: (net(shard).sum(), 1))))
elif case == "not-caught":
    (dist.barrier if is_odd else usual)()
elif case == "raises":
    if is_odd:
        raise ValueError("no such file")
    usual()
elif case == "raises-closed":
    if is_odd:
        sys.stdout.close()
        sys.stdout = None
        sys.stderr.close()
        raise ValueError("no such file")
    usual()
elif case == "unheard":
    if not is_odd:
        unheard = dist.all_reduce(mine, async_op=True)
elif case == "unheard-mismatch":
    call = (lambda: dist.broadcast(mine, 0, async_op=True)) if is_odd else (lambda: dist.all_reduce(mine, async_op=True))
    asked = call()
    call()
    dist.barrier()
    while not asked.is_completed():
        pass
    assert "all_reduce" in str(asked.exception())
elif case == "exits":
    if is_odd:
        sys.exit(3)
    usual()
elif case == "killed":
    if is_odd:
        os.kill(os.getpid(), signal.SIGKILL)
    usual()
elif case == "late":
    if is_odd:
        time.sleep(30)
    usual()
elif case == "late-for-nobody":  # in a call that no rank waits for, beside one that a callback holds
    other, forever = dist.new_group(list(range(size))), threading.Event()
    if not is_odd:
        dist.all_reduce(mine, async_op=True).get_future().then(lambda future: forever.wait())
        held = dist.all_reduce(mine, async_op=True)
        late = dist.all_reduce(mine, group=other, async_op=True)  # late for nobody
    else:
        dist.all_reduce(mine)
    forever.wait()
elif case == "stopped":
    if is_odd:
        os.kill(os.getpid(), signal.SIGSTOP)
    usual()
elif case == "alone":
    if is_odd:
        with lockstep.torch.working_alone():
            time.sleep(6)
    usual()
elif case == "left":
    if not is_odd:
        usual()
elif case == "monitored":
    if is_odd:
        time.sleep(3)
        sys.exit(0)
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
    except lockstep.StallError as error:
        say(error)
    os._exit(0)
elif case in ("interrupted", "interrupted-array", "interrupted-then"):
    if is_odd:
        time.sleep(60)
    say(f"process {os.getpid()} waits")
    if case == "interrupted-then":
        dist.all_reduce(mine, async_op=True).get_future().then(print)
    usual() if case == "interrupted" else lockstep.all_reduce(numpy.ones(4))
elif case == "quiet":  # the end without destroy_process_group, and with a call that nobody waits for
    other = dist.new_group(list(range(size)))
    dist.all_reduce(mine, group=other)
    del other
    kept = dist.all_reduce(mine, async_op=True)
else:
    raise SystemExit(f"no case {case}")
