"""Random numbers that depend on what they are for."""

import contextlib
import hashlib
import random
import sys

import torch


@contextlib.contextmanager
def seeded(what):
    """Within, the random numbers of torch on the CPU, of Python and of NumPy depend on this text alone; afterwards they
    go on as before."""
    seed = int.from_bytes(hashlib.blake2b(what.encode(), digest_size=8).digest(), "little")
    numpy = sys.modules.get("numpy")
    of_torch, of_python, of_numpy = torch.get_rng_state(), random.getstate(), numpy and numpy.random.get_state()
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if numpy:
        numpy.random.seed(seed & 0xFFFFFFFF)
    try:
        yield
    finally:
        torch.set_rng_state(of_torch)
        random.setstate(of_python)
        if numpy:
            numpy.random.set_state(of_numpy)
