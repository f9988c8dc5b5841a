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
    subprocess.run(command, env={**os.environ, "LOCKSTEP_FAULT": "kill:0:25"}, check=False, stderr=subprocess.DEVNULL)
    subprocess.run([*command, "--resume", "auto"], check=True, stdout=subprocess.DEVNULL)
    events = EventAccumulator(f"{folder}/run/events", size_guidance={"scalars": 0})
    events.Reload()
    for tag, steps in {"train/loss": range(1, 31), "train/gradient_norm": range(1, 31), "evaluation/accuracy": [10, 20, 30]}.items():
        found = [event.step for event in events.Scalars(tag)]
        assert found == list(steps), f"{tag}: steps {found}, expected {list(steps)}"
