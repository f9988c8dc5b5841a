#!/usr/bin/env python3
"""Reads the event files of a training that was killed and resumed as TensorBoard does, where Python has it:
read_events.py LOCKSTEP_TRAIN DATA. Exits 77 where it does not."""

import os
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("skipped: python3 has no tensorboard")
    sys.exit(77)

program, data = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    command = ["mpirun", "-n", "2", program, "--data", data, "--steps", "30", "--eval-every", "10", "--quiet",
               "--run-dir", f"{folder}/run", "--checkpoint-every", "10", "--tensorboard"]
    killed = subprocess.run(command, env={**os.environ, "LOCKSTEP_FAULT": "kill:0:25"}, check=False, stderr=subprocess.DEVNULL)
    assert killed.returncode != 0, "the training was to be killed"
    subprocess.run([*command, "--resume", "auto"], check=True, stdout=subprocess.DEVNULL)
    files = os.listdir(f"{folder}/run/events")
    assert len(files) == 2, f"event files {files}, expected one of each start"
    events = EventAccumulator(f"{folder}/run/events", size_guidance={"scalars": 0})
    events.Reload()
    for tag, steps in {"train/loss": range(1, 31), "train/gradient_norm": range(1, 31), "evaluation/accuracy": [10, 20, 30]}.items():
        found = [event.step for event in events.Scalars(tag)]
        assert found == list(steps), f"{tag}: steps {found}, expected {list(steps)}"
    tags = events.Tags()["scalars"]
    for begin, count in {"parts/": 8, "late/": 2}.items():
        found = [tag for tag in tags if tag.startswith(begin)]
        assert len(found) == count, f"tags {found}, expected {count} of {begin}"
