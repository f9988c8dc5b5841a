"""Which gradients a bucket of DistributedDataParallel has, for messages."""

import functools
import weakref

from torch.nn.parallel import DistributedDataParallel

_buckets = weakref.WeakKeyDictionary()  # module: {elements of a bucket: the parameters of each that has so many}
_unsettled = weakref.WeakSet()  # modules whose buckets may be made anew


def follow():
    """From now on, of each DistributedDataParallel that is made."""
    make = DistributedDataParallel.__init__

    @functools.wraps(make)
    def make_followed(self, *arguments, **options):
        make(self, *arguments, **options)
        _unsettled.add(self)
        self.register_forward_hook(_look)

    DistributedDataParallel.__init__ = make_followed


def names_of(elements):
    """What an all-reduce of a backward pass has, if it is a bucket: "the gradients of 0.weight, 0.bias". Otherwise
    nothing."""
    found = [names for buckets in list(_buckets.values()) for names in buckets.get(elements, ())]
    return f"the gradients of {' or '.join(map(_listed, found))}" if found else ""


def _look(module, *_):
    """After a forward pass: the buckets are made anew before the second one. Later, as the reducer calls the backend,
    it cannot be asked."""
    if module not in _unsettled:
        return
    indices = module._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices")
    if indices:
        _unsettled.discard(module)
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
