"""Replicas of a module, compared."""

import ctypes
import hashlib

import torch
import torch.distributed

from . import DriftError


def check_replicas(module: torch.nn.Module, group: torch.distributed.ProcessGroup | None = None) -> None:
    """Compares a module's parameters and buffers, byte by byte, on all ranks of the group, each of which calls this.
    Raises :class:`lockstep.DriftError` on every rank if they differ, with the first that does and whose is another. ::

        if step % 1000 == 0:
            lockstep.torch.check_replicas(model)

    What is sent is a digest of each."""
    named = [("parameter", *each) for each in module.named_parameters()]
    named += [("buffer", *each) for each in module.named_buffers()]
    mine = [(f"{kind} {name!r}", digest_of(tensor.detach())) for kind, name, tensor in named]
    of_ranks = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(of_ranks, mine, group=group)
    if all(each == of_ranks[0] for each in of_ranks):
        return
    for index in range(max(map(len, of_ranks))):
        here = [each[index] if index < len(each) else ("nothing", "") for each in of_ranks]
        if len(set(here)) > 1:
            raise DriftError("the replicas differ: " + _difference(here))


def digest_of(tensor):
    """Of its type, shape and bytes."""
    tensor = tensor.resolve_conj().resolve_neg().cpu().contiguous()
    kind = f"{tensor.dtype} {tuple(tensor.shape)} "
    return hashlib.blake2b(kind.encode() + ctypes.string_at(tensor.data_ptr(), tensor.nbytes), digest_size=16).hexdigest()


def _difference(values):
    """Of what ranks have: the usual, and who has something else."""
    usual = max(values, key=values.count)
    others = [rank for rank, value in enumerate(values) if value != usual]
    names = {name for name, _ in values}
    which = f"rank {others[0]} has" if len(others) == 1 else f"ranks {', '.join(map(str, others))} have"
    if len(names) == 1:
        return f"{which} another {usual[0]} than rank {values.index(usual)}"
    return f"{which} {values[others[0]][0]} where rank {values.index(usual)} has {usual[0]}"
