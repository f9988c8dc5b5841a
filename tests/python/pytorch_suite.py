"""PyTorch's own tests of backends, which its wheel has, against lockstep: pytorch_suite.py BACKEND [NAME...], started by
MPI's launcher. Prints how many passed on rank 0, and what was left out.

The tests take the backend for gloo, whose features they then expect. PyTorch skips those that need GPUs, or more ranks
than there are."""

import collections
import datetime
import os
import sys
import unittest

BACKEND = sys.argv[1]
LEFT_OUT = {
    "compare the backend's name with another": ["test_get_backend", "test_ddp_logging_data_cpu"],
    "expect gloo's words in errors": ["test_monitored_barrier_gloo", "test_monitored_barrier_gloo_subgroup"],
    "expect that the job goes on without a rank that is late": [
        "test_monitored_barrier_gloo_rank_0_timeout", "test_barrier_timeout_global",
    ],
    "need GPUs, but do not say so": [
        "test_all_to_all_cuda", "test_all_to_all_cuda_complex", "test_all_to_all_full_group_cuda",
        "test_batch_isend_irecv_op_err", "test_batch_isend_irecv_mixed_backend_err",
    ],
    "need torchvision": ["test_SyncBatchNorm_process_group"],
    "need a fourth rank, but do not say so": ["test_new_subgroups_with_group_param"],
}

os.environ["BACKEND"] = "gloo"
os.environ["WORLD_SIZE"] = os.environ["OMPI_COMM_WORLD_SIZE"]

import torch
import torch.distributed as dist
from torch.testing._internal.common_utils import set_rng_seed
from torch.testing._internal.distributed import distributed_test as suite

import lockstep.torch


class Cases(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    world_size = os.environ["WORLD_SIZE"]


def run(name):
    """One test in a process group of its own. Returns why it was skipped, if it was."""
    dist.init_process_group(BACKEND, timeout=datetime.timedelta(seconds=60))
    if dist.get_rank() == 0:
        suite.Barrier.init()
    suite.Barrier.barrier_id = 0
    dist.barrier()
    case = Cases(name)
    case.rank = dist.get_rank()
    set_rng_seed(1234)
    skipped = None
    try:
        getattr(case, name)()
    except unittest.SkipTest as reason:
        skipped = str(reason)
    except SystemExit as end:
        skipped = next(why for why, each in suite.TEST_SKIPS.items() if each.exit_code == end.code)
    dist.barrier()
    dist.destroy_process_group()
    return skipped


def make_folder():
    """What the tests use beside the process group, the same on all ranks."""
    dist.init_process_group(BACKEND)
    folder = [None]
    if dist.get_rank() == 0:
        suite.initialize_temp_directories()
        folder = [os.environ["TEMP_DIR"]]
    dist.broadcast_object_list(folder)
    os.environ["TEMP_DIR"] = folder[0]
    is_first = dist.get_rank() == 0
    dist.destroy_process_group()
    return is_first


left_out = {name for names in LEFT_OUT.values() for name in names}
names = sys.argv[2:] or [each for each in dir(Cases) if each.startswith("test_") and each not in left_out]
is_first = make_folder()
results = {name: run(name) for name in names}
if is_first:
    suite.cleanup_temp_dir()
    for reason, count in collections.Counter(results.values()).items():
        print(f"{count} skipped: {reason}" if reason else f"{count} passed")
    for reason, some in LEFT_OUT.items():
        print(f"{len(some)} left out, which {reason}")
