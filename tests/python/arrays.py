"""Arrays of NumPy, and tensors, without torch.distributed: on any number of ranks. Prints "done" on rank 0."""

import fractions
import random

import numpy

import torch

import lockstep
import lockstep.torch

with lockstep.torch.working_alone():  # before the job begins
    draw = random.Random(7)  # the same on all ranks
rank, size = lockstep.torch._start(None)

for dtype in (numpy.float32, numpy.float64, numpy.int32, numpy.int64):
    of_ranks = [numpy.array([[draw.randrange(100) for _ in range(5)] for _ in range(3)], dtype) for _ in range(size)]
    mine = of_ranks[rank].copy()
    assert lockstep.all_reduce(mine) is mine and (mine == sum(of_ranks)).all() and mine.dtype == dtype
    wide = numpy.repeat(of_ranks[rank], 2, axis=1)[:, ::2]  # not contiguous
    lockstep.all_reduce(wide)
    assert (wide == sum(of_ranks)).all()

# Each rank has another share of the numbers; the sum is that of the fractions.
numbers = [draw.uniform(-1, 1) * 2.0 ** draw.randrange(-300, 300) for _ in range(1000)]
expected = float(sum(map(fractions.Fraction, numbers)))
cuts = [0, *sorted(draw.randrange(1000) for _ in range(size - 1)), 1000]
assert lockstep.exact_sum(numbers[cuts[rank]:cuts[rank + 1]]) == expected
tenth = fractions.Fraction(float(numpy.float32(0.1)))
assert lockstep.exact_sum(numpy.array([0.1], numpy.float32)) == float(numpy.float32(float(size * tenth)))
elements = numpy.array([1e16 if rank == 0 else 1.0, -1.0 * rank])
lockstep.all_reduce(elements, "exact_sum")
assert elements[0] == float(fractions.Fraction(10**16) + size - 1) and elements[1] == -size * (size - 1) / 2

# Tensors, in their memory.
tensor = torch.tensor([[1e16 if rank == 0 else 1.0, 2.0], [-1.0 * rank, 3.0]], dtype=torch.float64, requires_grad=True)
assert lockstep.all_reduce(tensor, "exact_sum") is tensor
assert tensor[0, 0].item() == elements[0] and tensor[1, 0].item() == elements[1] and tensor[1, 1].item() == 3 * size
turned = torch.arange(6, dtype=torch.int64).reshape(2, 3).t()
lockstep.all_reduce(turned)
assert torch.equal(turned, size * torch.arange(6).reshape(2, 3).t())
assert lockstep.exact_sum(torch.tensor(numbers[cuts[rank]:cuts[rank + 1]], dtype=torch.float64)) == expected

# What PyTorch negates or conjugates only when somebody looks.
minus = torch._neg_view(torch.arange(4.0))
assert lockstep.all_reduce(minus) is minus and minus.tolist() == [0, -size, -2 * size, -3 * size]
imaginary = torch.tensor([1 + 2j, 3 - 4j]).conj().imag.t()
lockstep.all_reduce(imaginary)
assert imaginary.tolist() == [-2 * size, 4 * size]
lazy, plain = torch.tensor([1 + 2j]).conj(), torch.tensor([1 - 2j])
lockstep.same_on_all("numbers", lazy if rank == 0 else plain)
lockstep.same_on_all("parts", lazy.imag if rank == 0 else plain.imag)

lockstep.same_on_all("learning rate", 0.1)
lockstep.same_on_all("tensor", torch.arange(2000.0).bfloat16())
lockstep.same_on_all("weights", numpy.arange(4))


def caught(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("nothing was raised")


caught(lockstep.InvalidArgument, lambda: lockstep.all_reduce(numpy.ones(3, numpy.int8)))
caught(lockstep.InvalidArgument, lambda: lockstep.all_reduce(numpy.ones(3, numpy.int32), "exact_sum"))
caught(lockstep.InvalidArgument, lambda: lockstep.all_reduce(numpy.ones(3), "max"))
caught(lockstep.InvalidArgument, lambda: lockstep.all_reduce([1.0]))
caught(lockstep.InvalidArgument, lambda: lockstep.exact_sum(numpy.arange(3)))
caught(lockstep.InvalidArgument, lambda: lockstep.all_reduce(numpy.ones(3).astype(">f8")))
for refused in (torch.ones(3).bfloat16(), torch.eye(3).to_sparse(), torch.ones(3, device="meta")):
    caught(lockstep.InvalidArgument, lambda: lockstep.exact_sum(refused))
if size > 1:
    weights = torch.arange(2000.0)  # so many that repr leaves some out
    weights[1000] += rank
    text = caught(lockstep.MismatchError, lambda: lockstep.same_on_all("weights", weights))
    assert "float32[2000], digest" in text, text
    text = caught(lockstep.MismatchError, lambda: lockstep.same_on_all("seed", 2 if rank == size - 1 else 1))
    assert f"replica {size - 1} " in text and "(arrays.py:" in text and "seed = 2" in text and "seed = 1" in text, text
    text = caught(lockstep.MismatchError, lambda: lockstep.all_reduce(numpy.ones(3 if rank else 4)))
    assert "sum of float64[3]" in text and "sum of float64[4]" in text, text
    text = caught(lockstep.MismatchError, lambda: lockstep.same_on_all("weights", numpy.arange(4) + rank))
    assert "int64[4], digest" in text, text
lockstep.same_on_all("afterwards", "all is well")
if rank == 0:
    print("done")
