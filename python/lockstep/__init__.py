"""Ranks that agree on every collective before they send anything.

    import torch.distributed
    import lockstep.torch

    torch.distributed.init_process_group("lockstep")

Started by MPI's launcher (``mpirun -n 4 python train.py``), this needs no address and no port. The rest of a program for
``torch.distributed`` stays as it is. See :mod:`lockstep.torch`.

The exceptions below are what a collective raises when the ranks do not do the same. Each says in one sentence which rank
is where, with its line of Python. They are the same on every rank, so a program may catch one and go on; if it does not,
the job ends with that sentence on stderr.
"""

__all__ = ["DriftError", "Error", "InvalidArgument", "MismatchError", "PeerError", "StallError", "__version__"]

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
