"""A backend of ``torch.distributed`` for tensors on the CPU, over MPI.

Importing this module registers it::

    import lockstep.torch
    torch.distributed.init_process_group("lockstep")

and that is all that a program for gloo changes. Start it with MPI's launcher: ``mpirun -n 4 python train.py``.

**Agreed.** No rank sends anything before all ranks of the group are known to make the same call: the same collective, on
tensors of one shape and type, with one root and one operation. Otherwise each raises :class:`lockstep.MismatchError`
with the line of Python of each. Calls may come from different lines, and different scripts.

**Asynchronous.** A call with ``async_op=True`` returns at once, whatever the other ranks do, and goes on while the
program computes. Groups do not wait for each other.

**Reproducible.** Sums of floating-point numbers are added in the order of the ranks: the same bits in each run with as
many ranks.

**A rank that is gone, or late.** If a process ends, the job ends within seconds with a sentence that names it. If a rank
does not come to a call for which others wait, then after ``timeout`` of ``init_process_group`` the job ends with a
sentence that says where it is. Without a ``timeout``, this sentence is a warning after 60 seconds, and the wait goes on
for as long as ``torch.distributed`` lets it (30 minutes).

**The end.** An exception that leaves the script on one rank ends the job: its traceback comes first, then the sentence.

**Around another backend.** ``"lockstep_nccl"``, ``"lockstep_gloo"`` and :func:`around` agree in the same way, and then
another backend makes the call.

**The same bits on any number of ranks.** :class:`DataParallel` trains a module so.

**The record of a run.** :class:`record` writes the folder of which ``lockstep-report`` makes a page.

Under MPI's launcher, importing the module also lets ``init_process_group`` of any other backend find its ranks without
an address: gloo gets a store from lockstep.
"""

import atexit as _atexit
import contextlib as _contextlib
import datetime as _datetime
import functools as _functools
import importlib as _importlib
import itertools as _itertools
import os as _os
import sys as _sys
import sysconfig as _sysconfig
import typing as _typing

import torch as _torch
import torch.distributed as _distributed
import typing_extensions as _typing_extensions

from . import _buckets
from ._data_parallel import DataParallel
from ._extension import core as _core
from ._record import record
from ._replicas import check_replicas

__all__ = ["DataParallel", "around", "check_replicas", "record", "working_alone"]

# For how long a rank waits for another in silence, without a timeout of the program's.
_WARNING_AFTER = _datetime.timedelta(seconds=60)

_meetings = _itertools.count()
_process = _os.getpid()  # its children, such as workers of a DataLoader, are not in the job

_default_timeout = _distributed.constants.default_pg_timeout


def _start(timeout):
    """Starts the job, if it has not been started, and returns this process's rank and the number of ranks."""
    is_default = timeout is None or timeout >= _default_timeout
    silent = _WARNING_AFTER if is_default else timeout
    if not _core.has_started():
        _atexit.register(_leave)
    return _core.start(silent.total_seconds(), is_default)


def _leave():
    """Before Python ends. The process leaves the job later, when it exits."""
    if _os.getpid() != _process or not _core.has_started():
        return
    error = getattr(_sys, "last_exc", None) or getattr(_sys, "last_value", None)
    text = _core.end_python() if error is None else f"{type(error).__name__}: {error}".rstrip(": ")
    if not text:
        return
    for stream in (_sys.stdout, _sys.stderr):  # Python has printed its traceback
        with _contextlib.suppress(AttributeError, ValueError, OSError):  # where the program has closed it
            stream.flush()
    _core.end_job(text)


def _is_launched():
    """Whether MPI's launcher has started this process, rather than torchrun, or nobody."""
    return any(name in _os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"))


def _script():
    name = _os.path.basename(_sys.argv[0])
    return name if name.endswith(".py") else "train.py"


def _require_launcher():
    others = int(_os.environ.get("WORLD_SIZE") or 1)
    if others > 1 and not _is_launched():
        raise RuntimeError(
            f"torchrun, or WORLD_SIZE={others}, has started this process; expected MPI's launcher: "
            f"mpirun -n {others} python {_script()}"
        )


def _require_ranks(rank, size, of_job):
    if rank not in (-1, of_job[0]) or size not in (-1, of_job[1]):
        raise ValueError(
            f"init_process_group with rank {rank} of {size} in a process that MPI's launcher has started as rank "
            f"{of_job[0]} of {of_job[1]}; expected the same, or none"
        )


def _meet(url, timeout=_default_timeout, **_):
    """The rendezvous of the job: its ranks are MPI's, and its store is lockstep's."""
    _require_launcher()
    of_job = _start(timeout)
    query = dict(pair.split("=") for pair in url.partition("?")[2].split("&") if "=" in pair)
    _require_ranks(int(query.get("rank", -1)), int(query.get("world_size", -1)), of_job)
    # The keys of an earlier process group are still there.
    store = _distributed.PrefixStore(f"meeting {next(_meetings)}", _core.Store(timeout))
    yield store, *of_job
    raise RuntimeError("a job of MPI cannot meet again; expected another job")


def _wrap_env(meet_by_variables):
    """``env://``, which a program without ``init_method`` means, asks for an address in variables. Under MPI's launcher
    nobody sets them."""

    @_functools.wraps(meet_by_variables)
    def meet(url, **options):
        if _is_launched():
            return _meet(url, **options)
        if not {"RANK", "MASTER_ADDR"} & _os.environ.keys():
            tasks = int(_os.environ.get("SLURM_STEP_NUM_TASKS") or 1)
            who, expected = ("that no launcher has started", f"mpirun -n 4 python {_script()}") if tasks == 1 else (
                f"that srun has started as one of {tasks}, without MPI", f"srun --mpi=pmix, or mpirun -n {tasks} python "
                f"{_script()}")
            raise ValueError(f"init_process_group without an address, in a process {who}; expected {expected}")
        return meet_by_variables(url, **options)

    return meet


def _make(options, _):
    """Makes a group: what ``torch.distributed`` calls for ``"lockstep"``."""
    return _core.Backend(options.group_id, _ranks_of(options), options.timeout)


def _ranks_of(options):
    """Those of a group, or none for all of the job, which this starts."""
    _require_launcher()
    of_job = _start(options.timeout)
    ranks = list(options.global_ranks_in_group)
    if not ranks:  # the default group
        _require_ranks(options.group_rank, options.group_size, of_job)
    return ranks


def around(backend: str) -> str:
    """Returns the name of a backend around another one: the ranks agree on each call, which lockstep names if they
    differ, and then the other backend makes it. ::

        torch.distributed.init_process_group(lockstep.torch.around("nccl"))

    Importing this module registers ``"lockstep_nccl"`` and ``"lockstep_gloo"``."""
    inner, name = backend.lower(), f"lockstep_{backend.lower()}"
    backends = _distributed.Backend
    if inner not in backends.backend_list or inner.startswith("lockstep"):
        raise ValueError(f"lockstep.torch.around({backend!r}): expected another backend, which torch.distributed knows")
    if name not in backends.backend_list:
        backends.register_backend(
            name,
            lambda options, of_backend: _make_around(inner, options, of_backend),
            extended_api=True,
            devices=_devices_of(inner),
        )
    return name


def _make_inner(name, options, of_backend):
    """As ``init_process_group`` makes it."""
    where = options.store, options.group_rank, options.group_size
    backends = _distributed.Backend
    if hasattr(backends, "_ensure_backend_registered"):  # since 2.14, where PyTorch's own are plugins, too
        backends._ensure_backend_registered(name)
    plugin = backends._plugins.get(name.upper())
    if plugin:
        return plugin.creator_fn(*((options, of_backend) if plugin.extended_api else (*where, options.timeout)))
    if name == "gloo":
        return _distributed.ProcessGroupGloo(*where, timeout=options.timeout)
    if name == "nccl":
        of_backend = of_backend or _distributed.ProcessGroupNCCL.Options()
        of_backend._timeout = options.timeout
        of_backend.global_ranks_in_group = list(options.global_ranks_in_group)
        of_backend.group_name = options.group_id
        return _distributed.ProcessGroupNCCL(*where, of_backend)
    raise ValueError(f"lockstep.torch.around({name!r}): expected a backend that has been registered")


def _devices_of(backend):
    """The backend's types of devices that this machine has: PyTorch would query the streams of the others."""
    accelerator = _torch.accelerator.current_accelerator(check_available=True)
    all_of_it = _distributed.Backend.backend_capability[backend]
    there = [each for each in all_of_it if each == "cpu" or (accelerator and each == accelerator.type)]
    return there or all_of_it


def _make_around(name, options, of_backend):
    ranks = _ranks_of(options)
    group = getattr(options, "process_group", None)  # since 2.14
    if group and any(isinstance(group._get_backend(device), _core.AroundBackend) for device in group._device_types):
        raise ValueError("a process group with two backends of lockstep.torch.around; expected one, with 'cpu:lockstep'")
    inner = _make_inner(name, options, of_backend)
    if isinstance(inner, _distributed.ProcessGroup):
        raise TypeError(f"lockstep.torch.around({name!r}): expected a backend in C++, not a process group in Python")
    return _core.AroundBackend(f"{options.group_id} around {name}", ranks, options.timeout, inner)


@_contextlib.contextmanager
def working_alone() -> _typing.Iterator[None]:
    """For what one rank does while others wait for it, such as writing a checkpoint: meanwhile it is not late. ::

        if torch.distributed.get_rank() == 0:
            with lockstep.torch.working_alone():
                torch.save(model.state_dict(), "model.pt")
        torch.distributed.barrier()
    """
    alone = _core.Alone() if _core.has_started() else None  # before, nobody waits
    try:
        yield
    finally:
        del alone


def _wrap_get_future(get_future):
    """In Python alone, a callback of a future makes calls."""

    @_functools.wraps(get_future)
    def get_future_in_turn(work):
        return _core.future_of(work, get_future(work))

    return get_future_in_turn


def register() -> None:
    """What ``torch.distributed`` calls for ``"lockstep"`` in a program that has not imported this module. Importing it
    has done all."""


def _register():
    _core.set_library_folders(
        [_os.path.dirname(_torch.__file__) + _os.sep, _os.path.dirname(__file__) + _os.sep,
         _typing_extensions.__file__],  # around what PyTorch calls deprecated
        _sysconfig.get_path("stdlib") + _os.sep,
    )
    _buckets.follow()
    _distributed.Work.get_future = _wrap_get_future(_distributed.Work.get_future)
    # Its name in the package is that of a function in it.
    rendezvous = _importlib.import_module("torch.distributed.rendezvous")
    rendezvous.register_rendezvous_handler("lockstep", _meet)
    handlers = rendezvous._rendezvous_handlers
    handlers["env"] = _wrap_env(handlers["env"])
    _distributed.Backend.register_backend("lockstep", _make, extended_api=True, devices=["cpu"])
    if hasattr(_distributed.Backend, "_ensure_backend_registered"):  # since 2.14, where a plugin may have a type
        # A process group has one backend of each type, and may have one of `around` beside this one.
        _distributed.Backend.backend_type_map["lockstep"] = _distributed.ProcessGroup.BackendType.MPI
    for inner in ("gloo", "nccl"):
        if inner in _distributed.Backend.backend_list and getattr(_distributed, f"is_{inner}_available")():
            around(inner)


_register()
