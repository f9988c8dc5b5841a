"""Names the parameters in a bucket of DistributedDataParallel, for messages."""

import contextlib
import functools
import weakref

import torch
from torch.nn.parallel import DistributedDataParallel

from ._extension import core

_buckets = weakref.WeakKeyDictionary()  # module: {elements of a bucket: the parameters of each that has so many}
_settled = weakref.WeakSet()  # modules whose buckets stay as they are, or that belong to other backends


def follow():
    """From now on, every DistributedDataParallel."""
    forward = DistributedDataParallel.forward

    @functools.wraps(forward)
    def forward_followed(self, *inputs, **options):
        output = forward(self, *inputs, **options)
        _look(self)
        return output

    DistributedDataParallel.forward = forward_followed


def names_of(elements):
    """What an all-reduce of a backward pass has, if it is a bucket: "the gradients of 0.weight, 0.bias". Otherwise
    nothing."""
    found = [names for buckets in list(_buckets.values()) for names in buckets.get(elements, ())]
    return f"the gradients of {' or '.join(map(_listed, found))}" if found else ""


@torch._disable_dynamo  # as DistributedDataParallel.forward does: torch.compile cannot trace what this asks
def _look(module):
    """After a forward pass: the buckets are made anew before the second one. Later, as the reducer calls the backend,
    it cannot be asked."""
    if module not in _settled:
        with contextlib.suppress(Exception):  # it would end the user's forward pass
            _note_buckets(module)


def _note_buckets(module):
    group = module.process_group
    if not any(isinstance(group._get_backend(device), core.Backend) for device in group._device_types):
        _settled.add(module)
        return
    indices = module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices")
    if indices or (module.find_unused_parameters and not module.static_graph):  # these buckets are never made anew
        _settled.add(module)
    trained = [(name, each.numel()) for name, each in module.module.named_parameters()
               if each.requires_grad and name not in module.parameters_to_ignore]
    buckets = [list(map(int, each.split())) for each in indices.split(",")] if indices else [range(len(trained))]
    _buckets[module] = {}
    for bucket in buckets:
        names, elements = zip(*(trained[index] for index in bucket))
        _buckets[module].setdefault(sum(elements), []).append(names)


def _listed(names):
    at_most = 4
    rest = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return ", ".join(names[:at_most]) + rest
