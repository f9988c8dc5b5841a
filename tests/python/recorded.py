"""Records a run on two ranks in the folder of the first argument, and goes on with it until rank 1 raises."""

import json
import pathlib
import sys

import numpy
import torch

import lockstep
import lockstep.torch

folder = sys.argv[1]
rank, size = lockstep.torch._start(None)
assert size == 2

with lockstep.torch.record(folder, options={"lr": 0.1, "limit": float("inf")}) as run:
    for step in (1, 2, 3):
        run.step(step, loss=torch.tensor(1 / step if rank == 0 else 9.0), samples=8, epoch=1, learning_rate=0.1)
    run.evaluation(3, loss=0.5, accuracy=0.75, seconds=0.25, epoch=1)
    run.checkpoint(3, seconds=0.125, path=f"{folder}/model.pt")
    run.finish({"loss": float("nan")})
if rank == 0:
    about = json.loads((pathlib.Path(folder) / "run.json").read_text(encoding="utf-8"))
    assert about["options"] == {"lr": 0.1, "limit": "Infinity"} and about["result"] == {"loss": "NaN"}, about
try:
    run.step(4, loss=0.0)
    raise AssertionError("nothing was raised")
except lockstep.InvalidArgument as error:
    assert "the run has ended" in str(error), error

for wrong, expected in ({}, "holds a run already; expected resume_after"), ({"resume_after": -1}, "expected 0 or more"):
    try:
        lockstep.torch.record(folder, **wrong)
        raise AssertionError("nothing was raised")
    except lockstep.PeerError as error:
        assert rank == 1 and error.rank == 0, error
    except lockstep.Error as error:
        assert expected in str(error) and (rank == 0 or wrong), error

with lockstep.torch.record(folder, resume_after=3) as run:
    run.stop(3)
with lockstep.torch.record(folder, resume_after=3):
    pass  # and so it is complete
with lockstep.torch.record(folder, resume_after=2) as run:
    run.step(3, loss=0.25, samples=8)
    lockstep.all_reduce(numpy.ones(1))
    if rank == 1:
        raise ValueError("the end")
    lockstep.all_reduce(numpy.ones(1))
