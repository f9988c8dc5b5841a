#!/usr/bin/env python3
"""Tests scripts/nodes: nodes with names, memory and files of their own, on a network of the delay and the rates that
were asked for, of which nothing is left. With --programs, tests programs of lockstep on them instead. Exits with 77
where there can be none."""
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
STREAMS = pathlib.Path(__file__).with_name("streams.py")
LIMIT = 60  # seconds for what takes a fraction of one, on a busy machine
PROGRAM_LIMIT = 300  # seconds for what takes 20


def nodes(name, *words, check=True, limit=LIMIT):
    done = subprocess.run([ROOT / "scripts/nodes", "--name", name, *words], text=True, capture_output=True, cwd=ROOT,
                          stdin=subprocess.DEVNULL, timeout=limit)
    if done.returncode == 77:
        print(done.stderr.strip())
        sys.exit(77)
    assert not check or done.returncode == 0, f"{name} {words}: exit code {done.returncode}: {done.stderr}"
    return done


def folder_of(name):
    return pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"lockstep-nodes-{name}"


def networks():
    """The namespaces of networks in which processes are."""
    found = set()
    for link in pathlib.Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(link))
        except OSError:
            pass  # it has ended
    return found


def holders(name):
    """The command lines that name the folder of the nodes."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes()
        except OSError:
            continue
        if str(folder_of(name)).encode() in words:
            found.append(words)
    return found


def require_nothing_left(name, network):
    assert not folder_of(name).exists(), folder_of(name)
    of_mpirun = [path for path in folder_of(name).parent.iterdir() if f".{name}head." in path.name]
    assert not of_mpirun, of_mpirun
    until = time.monotonic() + LIMIT
    while (left := holders(name)) or network in networks():
        assert time.monotonic() < until, f"left: {left}, or processes in {network}"
        time.sleep(0.05)
    assert name not in pathlib.Path("/proc/mounts").read_text()


def measure(name, *, delay_ms, mbit):
    server = subprocess.Popen([ROOT / "scripts/nodes", "--name", name, "exec", f"{name}1", sys.executable, STREAMS,
                               "serve"], text=True, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert server.stdout.readline() == "ready\n"
        said = nodes(name, "exec", f"{name}2", sys.executable, STREAMS, "10.79.0.1", "600000").stdout
        assert server.wait(LIMIT) == 0
    finally:
        server.kill()
    trip, one_way, both_ways = map(float, said.split())
    # A busy machine may take much longer. None can be faster.
    assert 2 * delay_ms <= trip <= 2 * delay_ms + 500, said
    for rate in (one_way, both_ways):
        assert mbit * 0.4 <= rate <= mbit * 1.02, said


def program(variable, name, *words, ranks):
    """The JSON that a program of lockstep ends with."""
    where = ["--nodes", "1"] if ranks == 1 else []
    done = nodes(name, "run", *where, "-n", str(ranks), os.environ[variable], *words, limit=PROGRAM_LIMIT)
    return json.loads(done.stdout.splitlines()[-1])


def train_with_losses(name):
    """On nodes that lose frames, a training ends in the bytes of one on a single node."""
    nodes(name, "up", "3", "--rate", "50mbit", "--delay", "1ms", "--loss", "5%")
    training = ["--data", os.environ["LOCKSTEP_SMALL_DATA"], "--hidden", "8", "--steps", "3", "--quiet"]
    several, alone = (program("LOCKSTEP_TRAIN", name, *training, ranks=ranks) for ranks in (4, 1))
    assert (several["ranks"], several["weights_digest"]) == (4, alone["weights_digest"]), (several, alone)


def measure_compressed(name):
    """Between two nodes, a rank sends half of the gradients in 16 bits, and then the sum of the other half."""
    nodes(name, "up", "2")
    step = ["step", "--compare", "overlap", "--compress-gradients", "bf16", "--hidden", "64", "--global-batch", "8",
            "--steps", "1", "--warm-up", "0", "--iterations", "6", "--json", "/dev/stdout"]
    row = program("LOCKSTEP_BENCH", name, *step, ranks=2)["rows"][0]
    assert row["compression"] == "bf16" and abs(row["sent"] / row["parameters"] - 2) < 0.1, row


def measure_slowest_wire(name):
    """Predictions in a job find the rate of the slowest wire, also for gradients that are mostly latency."""
    nodes(name, "up", "2", "--rate", "200mbit,100mbit", "--delay", "10ms")
    row = program("LOCKSTEP_BENCH", name, "predict", "--hidden", "8", "--global-batch", "8", "--nodes", "2",
                  "--iterations", "3", "--json", "/dev/stdout", ranks=2)["rows"][0]
    wire = 100 / 8 * 1448 / 1538
    assert 0.8 * wire < row["rate"] < 1.05 * wire, row


def main():
    if ROOT.is_relative_to("/tmp"):
        print(f"nodes have a /tmp of their own, where {ROOT} is not")
        sys.exit(77)
    first, second, killed = names = [f"t{os.getpid()}-{letter}" for letter in "abc"]
    try:
        if "--programs" in sys.argv:
            train_with_losses(first)
            measure_compressed(second)
            measure_slowest_wire(killed)
            return
        nodes(first, "up", "2", "--rate", "50mbit,20mbit", "--delay", "3ms", "--loss", "0.1%", "--seed", "3")
        network = nodes(first, "exec", f"{first}1", "readlink", "/proc/self/ns/net").stdout.strip()
        nodes(second, "up", "2", "--rate", "60mbit", "--queue", "256K")
        measure(first, delay_ms=3, mbit=20)
        measure(second, delay_ms=0, mbit=60)
        # Linux's default, but not after losses.
        for name, by_cubic in ((first, False), (second, True)):
            assert ("congctl cubic" in nodes(name, "exec", f"{name}1", "ip", "route").stdout) == by_cubic, name
        unknown = nodes(killed, "up", "--congestion", "none", check=False)
        assert unknown.returncode == 1 and "--congestion 'none': expected one of reno" in unknown.stderr, unknown.stderr
        twice = nodes(first, "up", check=False)
        assert twice.returncode == 1 and "nodes are up" in twice.stderr, twice.stderr

        alone = "touch /tmp/mine /dev/shm/mine; hostname; ls /tmp /dev/shm"
        assert nodes(first, "exec", f"{first}1", "sh", "-c", alone).stdout.split() == \
            [f"{first}1", "/dev/shm:", "mine", "/tmp:", "mine"]
        assert nodes(first, "exec", f"{first}2", "sh", "-c", "ls /tmp /dev/shm").stdout.split() == ["/dev/shm:", "/tmp:"]
        ran = nodes(first, "run", "-n", "3", "hostname")
        assert sorted(ran.stdout.split()) == [f"{first}1", f"{first}1", f"{first}2"], ran.stdout

        assert nodes(first, "run", "--nodes", "1", "-n", "2", "hostname").stdout.split() == [f"{first}1"] * 2

        # What runs when they are taken down: ranks, and more on a node and on the head.
        ranks = subprocess.Popen([ROOT / "scripts/nodes", "--name", first, "run", "sh", "-c",
                                  "echo runs; exec sleep 1000"], text=True, cwd=ROOT, stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, start_new_session=True)
        assert ranks.stdout.readline() == "runs\n"
        for node in (f"{first}2", f"{first}head"):
            runs = subprocess.Popen([ROOT / "scripts/nodes", "--name", first, "exec", node, "sh", "-c",
                                     "echo runs; exec sleep 1000"], text=True, cwd=ROOT, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, start_new_session=True)
            assert runs.stdout.readline() == "runs\n"
        nodes(first, "down")
        require_nothing_left(first, network)
        assert nodes(second, "exec", f"{second}1", "hostname").stdout == f"{second}1\n"

        starting = subprocess.Popen([ROOT / "scripts/nodes", "--name", killed, "up", "4"], cwd=ROOT,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not (folder_of(killed) / "log" / f"{killed}2").exists() and starting.poll() is None:
            time.sleep(0.01)
        starting.kill()
        starting.wait()
        nodes(killed, "down")
        require_nothing_left(killed, "none")
    finally:
        for name in names:
            nodes(name, "down")


if __name__ == "__main__":
    main()
