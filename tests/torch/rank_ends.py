#!/usr/bin/env python3
"""What comes of a rank that ends, stops, hangs or throws while LibTorch computes: rank_ends.py PLACES COMMAND..., where
COMMAND starts the job victim of torch-jobs on three ranks. The job must end by itself, with one line that names the
rank. PLACES is where each fault strikes: `one` is where it is the harder to tell, `other` the other place."""

import concurrent.futures
import subprocess
import sys

FAULTS = {
    "kill": "is gone: its process ended",
    "stop": "has stopped: no sign of life for 2 s",
    "hang": "was waited for 2 s",
    "throw": "failed: bang",
}
# A backward pass runs in LibTorch's engine, which passes exceptions on and holds locks. A stop is the same everywhere.
PLACES = {
    "one": {"kill": "backward", "stop": "forward", "hang": "backward", "throw": "backward"},
    "other": {"kill": "forward", "stop": "backward", "hang": "forward", "throw": "forward"},
}
TIMEOUT_S = 120  # the longest fault is named after 2 s; a busy machine needs more to start


def check(command, fault, place):
    job = subprocess.Popen([*command, f"{fault}-{place}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _, errors = job.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        job.terminate()  # mpirun then ends its ranks
        job.communicate()
        return "did not end"
    lines = [line for line in errors.splitlines() if line.startswith("lockstep:")]
    if job.returncode == 0:
        return "ended with 0"
    if len(lines) != 1 or not lines[0].startswith("lockstep: replica 2 (worker:2, host ") or \
            FAULTS[fault] not in lines[0] or "step 4, computing" not in lines[0]:
        return "said:\n" + errors
    return ""


def main():
    faults = list(PLACES[sys.argv[1]].items())
    with concurrent.futures.ThreadPoolExecutor() as pool:  # they wait more than they compute
        problems = list(pool.map(lambda each: check(sys.argv[2:], *each), faults))
    for (fault, place), problem in zip(faults, problems):
        print(f"{fault} in {place}: {problem or 'named'}")
    return 1 if any(problems) else 0


if __name__ == "__main__":
    sys.exit(main())
