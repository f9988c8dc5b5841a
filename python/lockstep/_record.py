"""The record of a run."""

import json
import os


def _as_json(values):
    """What JSON does not have, such as NaN, becomes text."""
    return json.dumps(json.loads(json.dumps(values, default=str), parse_constant=str))


_under_way = set()  # kept: a failure that ends the job is noted in their folders


class record:
    """Writes the folder of a run: what ran where, the numbers of each step, and what happened when.
    ``lockstep-report run1`` makes a page of it, also while the run is under way. ::

        with lockstep.torch.record("run1", options={"model": "mlp", "lr": 0.1}) as run:
            for step, (images, labels) in enumerate(loader, 1):
                ...
                run.step(step, loss=loss, samples=64)

    All ranks make it, after ``init_process_group`` or as the first call of lockstep. What rank 0 gives counts, and rank 0
    writes: the other methods wait for nobody, and on other ranks do nothing. A line is in its file when the call returns.
    If the job fails, the folder gets the sentence of the failure, and a ``with`` block that an exception leaves does not
    say that the run is complete.

    ``resume_after`` is the number of steps after which this run goes on with what an earlier start left in the folder,
    0 if it begins anew; lines about later steps are removed. Without it, the folder must hold no run. ``options`` is what
    describes the run, for the page. With ``trace``, each rank keeps a trace of its last half million spans, too.

    docs/reference.md has the fields of the files, and include/README.md the contract of RunRecord, which this is."""

    def __init__(self, folder: str | os.PathLike, *, resume_after: int | None = None, options: dict | None = None,
                 trace: bool = False) -> None:
        from . import _job, _records

        job = _job()
        about = {} if options is None else {"options": options}
        self._record = _records.Record(job.Group(), job.place_of_call(), os.fspath(folder), resume_after, _as_json(about),
                                       trace)
        _under_way.add(self)

    def step(self, step: int, *, loss: float, samples: int = 0, epoch: int = 0, learning_rate: float | None = None,
             gradient_norm: float | None = None) -> None:
        """After a step, with the number of steps made. ``samples`` of all ranks; ``epoch`` counts from 1."""
        self._record.step(step, float(loss), samples, epoch, learning_rate, gradient_norm)

    def evaluation(self, step: int, *, loss: float, accuracy: float | None = None, seconds: float = 0,
                   epoch: int = 0) -> None:
        """After an evaluation, which took ``seconds``."""
        self._record.evaluation(step, float(loss), accuracy, seconds, epoch)

    def checkpoint(self, step: int, *, seconds: float = 0, path: str | os.PathLike = "") -> None:
        """After a checkpoint was saved, for which the steps waited for ``seconds``."""
        self._record.checkpoint(step, seconds, os.fspath(path))

    def stop(self, step: int) -> None:
        """The run ends early, after so many steps. Nothing is written after this."""
        self._record.stop(step)
        _under_way.discard(self)

    def finish(self, result: dict | None = None) -> None:
        """The run is complete: what the end of a ``with`` block says, too. Nothing is written after this."""
        self._record.finish("" if result is None else _as_json(result))
        _under_way.discard(self)

    def __enter__(self) -> "record":
        return self

    def __exit__(self, kind, *_) -> None:
        if kind is None and self in _under_way:
            self.finish()
