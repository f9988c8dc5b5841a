#!/usr/bin/env python3
"""Makes runs to look at, as lockstep-train --run-dir writes them: make_runs.py FOLDER. Each has something to find."""

import json
import math
import pathlib
import random
import sys

PARTS = {"data": 0.002, "forward": 0.006, "backward": 0.012, "optimizer": 0.002, "checkpoint": 0, "evaluation": 0,
         "other": 0.0005}


class Files:
    """The metrics and the time line of a run that goes on."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        self.metrics = open(folder / "metrics.jsonl", "w", encoding="utf-8")
        self.timeline = open(folder / "timeline.jsonl", "w", encoding="utf-8")

    def metric(self, **line):
        print(json.dumps(line), file=self.metrics)

    def event(self, **line):
        print(json.dumps(line), file=self.timeline)


def record(folder, options, hosts, ends, starts):
    ranks = [{"replica": i, "task": f"worker:{i}", "host": host, "device": "cpu:0", "process": 4000 + i}
             for i, host in enumerate(hosts)]
    command = ["lockstep-train"] + [word for name, value in options.items() for word in (f"--{name}", value)]
    text = {"format": 1, "lockstep": "0.1.0", "program": "lockstep-train", "command": command, "options": options,
            "cluster": None, "mpi": "Open MPI v4.1.4", "fingerprint": ["oneDNN 2.7, AVX512"],
            "data": {"digest": "0d4169f410b7e456", "schema": "u8[28,28]", "samples": 60000, "test_samples": 10000},
            "ranks": ranks, "paths": {}, "started": "2026-01-05T08:00:00Z", "ended": ends and "2026-01-05T08:01:10Z",
            "result": {"steps": 2000} if ends else None, "starts": starts}
    (folder / "run.json").write_text(json.dumps(text, indent=2), encoding="utf-8")


def make(folder, rate=0.1, steps=2000, slow=None, part="data", hosts=("a", "a", "b", "b"), restarts=(), checkpoint=0.05,
         ends=True, options=None, lost=()):
    """`slow` has the factor of each slow rank in `part`, `lost` the steps whose loss is not finite."""
    chance, files, slow = random.Random(len(folder.name)), Files(folder), slow or {}
    now, seconds, samples, start, since = 1.7676e9, 0.0, 0, 1, 0
    sums, late, elapsed = [dict.fromkeys([*PARTS, "waiting"], 0.0) for _ in hosts], [0.0] * len(hosts), 0.0
    files.event(kind="start", time=now, start=1, ranks=len(hosts), step=0, resumed=False)
    for step in range(1, steps + 1):
        own = [{name: value * (1 + chance.random() / 10) * (slow.get(rank, 1) if name == part else 1)
                for name, value in PARTS.items()} for rank in range(len(hosts))]
        busy = [sum(parts.values()) for parts in own]
        slowest = max(range(len(hosts)), key=lambda rank: busy[rank])
        for rank, parts in enumerate(own):
            late[rank] += busy[rank] - min(busy)
            for name, value in [*parts.items(), ("waiting", busy[slowest] - busy[rank] + 0.001)]:
                sums[rank][name] += value
        took, batch = busy[slowest] + 0.001, 64 if step % 50 else 32
        now, seconds, elapsed, samples = now + took, seconds + took, elapsed + took, samples + batch
        noise = chance.random() * math.exp(-step / steps) / 4
        files.metric(kind="train", step=step, epoch=1 + (step - 1) // 50, samples=samples, batch=batch,
                     loss=None if step in lost else 2.3 * math.exp(-20 * rate * step / steps) + noise + 0.1,
                     learning_rate=rate * min(1, step / 50) * (1 + math.cos(math.pi * step / steps)) / 2,
                     gradient_norm=1 + chance.random() / 3 + (5 if step == steps // 2 else 0), seconds=seconds,
                     samples_per_second=samples / seconds)
        if step % 100 == 0:
            files.metric(kind="eval", step=step, epoch=step // 50, seconds=0.3,
                         loss=2.3 * math.exp(-18 * rate * step / steps) + 0.15 + 2 * rate * (step / steps)**3,
                         accuracy=0.95 - 0.85 * math.exp(-20 * rate * step / steps))
            files.event(kind="evaluation", time=now + 0.3, start=start, step=step, seconds=0.3)
            now, elapsed = now + 0.3 + checkpoint, elapsed + 0.3 + checkpoint
            files.event(kind="checkpoint", time=now, start=start, step=step, seconds=checkpoint, path=f"step-{step}")
            for parts in sums:
                parts["evaluation"] += 0.3
                parts["checkpoint"] += checkpoint
            files.metric(kind="parts", step=step, steps=step - since, seconds=elapsed,
                         ranks=[{"replica": rank, "name": f"worker:{rank}", "host": host, **sums[rank],
                                 "late": late[rank] / elapsed, "mostly": part if rank in slow else "backward"}
                                for rank, host in enumerate(hosts)])
            sums, late, elapsed = [dict.fromkeys([*PARTS, "waiting"], 0.0) for _ in hosts], [0.0] * len(hosts), 0.0
            since = step
        if step in restarts:
            files.event(kind="failure", time=now, start=start, exit_code=137,
                        line=f"replica 2 (worker:2, host b) is gone: its process ended; it was in step {step}")
            now, start, seconds = now + 4, start + 1, 0.0
            files.event(kind="start", time=now, start=start, ranks=len(hosts), step=step, resumed=True)
    if ends:
        files.event(kind="end", time=now, start=start, step=steps)
    record(folder, {"model": "mlp", "learning-rate": str(rate), "optimizer": "adam", "run-dir": str(folder),
                    **(options or {})}, hosts, ends, start)


def main():
    folder = pathlib.Path(sys.argv[1])
    make(folder / "baseline", rate=0.2)
    make(folder / "slow-loader", slow={2: 3.5}, restarts=(700, 1500))
    make(folder / "slow-host", rate=0.05, steps=1600, slow={2: 1.3, 3: 1.3}, part="backward", checkpoint=0.8, ends=False)
    make(folder / "many-ranks", steps=300, slow={33: 3}, hosts=[f"n{rank // 16}" for rank in range(64)])
    make(folder / "<img src=x onerror=stop()>\"'&", steps=100, options={"data": "</script><img src=x onerror=stop()>"})
    make(folder / "no-loss", steps=20, lost=(2, 3))
    make(folder / "empty", steps=0)


if __name__ == "__main__":
    main()
