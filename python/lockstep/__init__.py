"""Ranks that agree on every collective before they send anything.

    import torch.distributed
    import lockstep.torch

    torch.distributed.init_process_group("lockstep")

Started by MPI's launcher (``mpirun -n 4 python train.py``), this needs no address and no port. The rest of a program for
``torch.distributed`` stays as it is. See :mod:`lockstep.torch`.

A program without a model, with arrays of NumPy or tensors, calls :func:`all_reduce`, :func:`exact_sum` and :func:`same_on_all`.

The exceptions below are what a collective raises when the ranks do not do the same. Each says in one sentence which rank
is where, with its line of Python. They are the same on every rank, so a program may catch one and go on; if it does not,
the job ends with that sentence on stderr.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    import numpy as _numpy
    import torch as _torch

__all__ = ["DriftError", "Error", "InvalidArgument", "MismatchError", "PeerError", "StallError", "__version__", "all_reduce",
           "exact_sum", "same_on_all"]

__version__ = "0.2.0"


class Error(RuntimeError):
    """Something that lockstep has to say. The classes below, and failures of MPI or of the machine."""


class InvalidArgument(Error):
    """A call that this rank alone can tell is wrong, before it sends anything."""


class MismatchError(Error):
    """The ranks called different collectives, or one with operands of different shapes or types, with another root or
    another operation. Raised on every rank of the group, which can be used again."""


class DriftError(Error):
    """Values that should be the same on all ranks are not: :func:`lockstep.torch.check_replicas`."""


class PeerError(Error):
    """Another rank failed."""

    #: Its rank in the group.
    rank: int = -1


class StallError(Error):
    """A collective has not ended within its timeout, or a rank did not come to a monitored barrier."""


def _job():
    """The extension, in a job that has begun."""
    from . import torch

    torch._require_launcher()
    torch._start(None)
    return torch._core


def _as_array(values):
    """An array; for a tensor of PyTorch, in the tensor's memory."""
    import numpy

    if not hasattr(values, "detach"):
        return values if isinstance(values, numpy.ndarray) else numpy.asarray(values)
    try:
        return values.detach().resolve_conj().resolve_neg().numpy()
    except (RuntimeError, TypeError):  # of another device, layout or type
        raise InvalidArgument(f"a tensor of {values.dtype} on {values.device}, {values.layout}: expected a dense one on the "
                              "CPU, of a type that NumPy has") from None


def all_reduce(array: "_numpy.ndarray | _torch.Tensor", op: str = "sum") -> "_numpy.ndarray | _torch.Tensor":
    """Adds up the arrays of all ranks, or tensors of PyTorch on the CPU, element by element and in place, and returns the
    array. All ranks call this, with one shape and type: float32, float64, int32 or int64. ::

        lockstep.all_reduce(histogram)

    Floating-point numbers are added in the order of the ranks: the same bits in each run on as many ranks. With ``op``
    ``"exact_sum"``, each sum of floating-point numbers is exact and rounded once."""
    import numpy

    if op not in ("sum", "exact_sum"):
        raise InvalidArgument(f"all_reduce with op={op!r}; expected 'sum' or 'exact_sum'")
    memory = _as_array(array)
    if memory is not array and not hasattr(array, "detach"):
        raise InvalidArgument(f"all_reduce of a {type(array).__name__}; expected an array, or a tensor, whose elements change")
    contiguous = numpy.require(memory, requirements="C")
    _job().all_reduce(contiguous, op)
    if contiguous is not memory:
        memory[...] = contiguous
    if memory is not array and array.is_neg():  # its own memory holds the negative numbers
        import torch

        array.detach().copy_(torch.from_numpy(memory))
    return array


def exact_sum(numbers: "_numpy.typing.ArrayLike | _torch.Tensor") -> float:
    """The exact sum of the numbers of all ranks, rounded once: the same on any number of ranks, however the numbers are
    spread over them and ordered. All ranks call this, with float32 or with float64; each may have another number of
    them. They may be a tensor of PyTorch on the CPU. ::

        norm = math.sqrt(lockstep.exact_sum(mine * mine))
    """
    import numpy

    return _job().exact_sum(numpy.ascontiguousarray(_as_array(numbers)))


def same_on_all(name: str, value: object) -> None:
    """Raises :class:`MismatchError` on all ranks unless they give the same value: a number, a text, or an array or a
    tensor, of which the ranks compare a digest. ::

        lockstep.same_on_all("learning rate", rate)
    """
    import numpy

    text = f"{value!r}"
    if hasattr(value, "detach"):
        from ._replicas import digest_of

        text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}, digest {digest_of(value.detach())}"
    elif isinstance(value, numpy.ndarray):
        import hashlib

        digest = hashlib.blake2b(numpy.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
        text = f"{value.dtype}{list(value.shape)}, digest {digest}"
    _job().same_on_all(f"{name} = {text}")
