"""Runs the scripts of this folder as jobs, by pytest: each case is a job of MPI's."""

import importlib.metadata
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

TORCH = tuple(map(int, importlib.metadata.version("torch").split(".")[:2]))
HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",  # otherwise gloo warns where the host's name has no address
    # As tests/meson.build has it, and why.
    "HWLOC_COMPONENTS": "-gl,-pci,-linux:pci",
    "HWLOC_PLUGINS_PATH": "/nonexistent",
}


def command(ranks, script, *arguments):
    return ["mpirun", "-n", str(ranks), sys.executable, "-W", "ignore", str(HERE / script), *arguments]


def job(ranks, script, *arguments, timeout=240):
    return subprocess.run(command(ranks, script, *arguments), env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=timeout)


def line_of(text):
    """The number of the line of failing.py that ends with this text."""
    lines = (HERE / "failing.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(text))


@pytest.mark.parametrize("backend, ranks", [*(("lockstep", ranks) for ranks in (1, 2, 3, 4)),
                                            *(("lockstep_gloo", ranks) for ranks in (1, 2, 3))])
@pytest.mark.parametrize("script", ["collectives.py", "ddp.py"])
def test_right(script, backend, ranks):
    done = job(ranks, script, backend)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "done\n"
    assert done.stderr == ""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_arrays(ranks):
    done = job(ranks, "arrays.py")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_record(tmp_path):
    folder = tmp_path / "run"
    done = job(2, "recorded.py", str(folder))
    assert done.returncode == 4, done.stdout + done.stderr

    def lines_of(name):
        return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]

    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert [rank["replica"] for rank in about["ranks"]] == [0, 1] and about["starts"] == 4 and about["result"] is None
    steps = [(line["kind"], line["step"], line["loss"], line.get("samples")) for line in lines_of("metrics.jsonl")]
    assert steps == [("train", 1, 1.0, 8), ("train", 2, 0.5, 16), ("train", 3, 0.25, 24)]  # of the chief
    timeline = lines_of("timeline.jsonl")
    assert [line["kind"] for line in timeline] == ["start", "evaluation", "checkpoint", "end", "start", "stop", "start", "end", "start",
                                                   "failure"]
    assert (timeline[2]["path"], timeline[2]["seconds"], timeline[4]["resumed"]) == ("model.pt", 0.125, True)
    assert "replica 1" in timeline[-1]["line"] and timeline[-1]["line"].endswith("ValueError: the end")


def test_pytorch_suite():
    pytest.importorskip("expecttest")
    done = job(3, "pytorch_suite.py", "lockstep")
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^(\d+) passed$", done.stdout, re.MULTILINE)
    assert passed and int(passed[1]) >= 90, done.stdout


def test_shards():
    """The same bytes on 1, 2, 3 and 4 ranks, which one job has as groups, and in another job."""
    alone, on_four = job(1, "shards.py"), job(4, "shards.py")
    assert (alone.returncode, alone.stderr, on_four.returncode, on_four.stderr) == (0, "", 0, ""), (alone, on_four)
    assert len(alone.stdout.splitlines()) == 2 and alone.stdout == on_four.stdout


def test_shards_that_differ():
    done = job(3, "failing.py", "shards")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for case, *words in (
        ("module", "DataParallel #", "(failing.py:", "Linear with 16 trained", "Linear with 12 trained"),
        ("loader", "DataParallel.loader #", "(failing.py:", "17 samples in batches of 8", "16 samples in batches of 8"),
        ("end", "replica 2 ", "barrier #", "DataParallel.backward #", f"failing.py:{line_of('# step')}",
         "step 1, in 4 shards"),
        ("misuse", "a forward pass in training", "of 0 shards", "its number of samples", "1 shard for 3 ranks",
         "SyncBatchNorm", "bfloat16"),
        ("drift", "the replicas differ: rank 2 has another parameter '0.bias' than rank 0"),
        ("buffers", "step 0 after a change of buffer '1.running_mean' and 2 more ("),
    ):
        said = [line for line in lines if line.split(": ")[1] == case]
        assert len(said) == 3 and all(word in line for line in said for word in words), said


USUAL = line_of("# usual")


@pytest.mark.parametrize("backend", ["lockstep", "lockstep_gloo"])
@pytest.mark.parametrize("case, odd, rest", [
    ("another-collective", "broadcast", "all_reduce"),
    ("another-shape", "SUM of float32[5]", "SUM of float32[4]"),
    ("another-type", "SUM of float64[4]", "SUM of float32[4]"),
    ("another-operation", "MAX of float32[4]", "SUM of float32[4]"),
    ("barrier", "barrier", "all_reduce"),
    ("coalesced", "all_reduce_coalesced", "all_reduce"),
])
def test_mismatch(case, odd, rest, backend):
    done = job(3, "failing.py", case, "--backend", backend)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert len(lines) == 3
    own = line_of(f"lambda: {MISMATCH_CALLS[case]},")
    for rank, line in enumerate(lines):
        assert line.startswith(f"{rank}: replica 2 "), line
        assert f"(failing.py:{own})" in line and f"(failing.py:{USUAL})" in line
        assert odd in line and rest in line


MISMATCH_CALLS = {
    "another-collective": "dist.broadcast(mine, 0)",
    "another-shape": "dist.all_reduce(torch.ones(5))",
    "another-type": "dist.all_reduce(torch.ones(4, dtype=torch.float64))",
    "another-operation": "dist.all_reduce(mine, dist.ReduceOp.MAX)",
    "barrier": "dist.barrier()",
    "coalesced": "dist.all_reduce_coalesced([mine])",
}


@pytest.mark.parametrize("backend, case, lines, words", [
    ("lockstep", "another-root", 3, ["from rank 1", "from rank 0"]),
    ("lockstep", "asynchronous", 3, ["broadcast", "all_reduce"]),
    ("lockstep_gloo", "asynchronous", 3, ["broadcast", "all_reduce"]),
    ("lockstep", "fake", 3, ["float32[9] to", "float32[6] to"]),
    ("lockstep", "message", 2, ["sends float32[3]", "receives float32[2]"]),
    ("lockstep_gloo", "message", 2, ["sends float32[3]", "receives float32[2]"]),
    ("lockstep_gloo", "lists", 3, ["2 to 2 tensors", "3 to 3 tensors", "(failing.py:"]),
    ("lockstep_gloo", "parts", 3, ["all_to_all (failing.py:", "rank 2 has 2 elements for rank 0, which expects 1"]),
    ("lockstep", "replicas", 3, ["the replicas differ: rank 2 has another buffer '1.running_var' than rank 0"]),
])
def test_other_mismatch(backend, case, lines, words):
    done = job(3, "failing.py", case, "--backend", backend)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == lines, done.stdout
    assert all(word in line for line in done.stdout.splitlines() for word in words), done.stdout


@pytest.mark.parametrize("backend", ["lockstep", "lockstep_gloo"])
@pytest.mark.parametrize("case, sentence, code", [
    ("not-caught", r"lockstep: replica 2 .* is at barrier #2 \(failing.py:\d+\); replicas 0, 1 are at all_reduce", 3),
    ("raises", r"lockstep: replica 2 .* failed: ValueError: no such file", 4),
    ("raises-closed", r"lockstep: replica 2 .* failed: ValueError: no such file", 4),
    ("unheard", r"lockstep: replica 2 .* called exit\(0\) before the end of the job", 4),
    # Of two calls, the one that the program does not ask for.
    ("unheard-mismatch", r"lockstep: replica 2 .* is at broadcast #3 \(failing.py:\d+\)", 3),
    ("exits", r"lockstep: replica 2 .* called exit\(3\)", 3),
    ("killed", r"lockstep: replica 2 .* is gone", 137),  # mpirun's own, for SIGKILL
])
def test_end(case, sentence, code, backend):
    begun = time.monotonic()
    done = job(3, "failing.py", case, "--backend", backend)
    assert re.search(sentence, done.stderr), done.stderr
    assert done.returncode == code, done.stderr
    if case == "raises":
        assert done.stderr.index("Traceback") < done.stderr.index("lockstep: replica 2")
    if case == "unheard-mismatch":
        assert done.stderr.count("has failed, and the program does not wait for it: replica 2") == 3, done.stderr
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("case", ["backward", "backward-hook"])
def test_backward(case):
    """A mismatch in a backward pass has its type, both lines, and what the rank's bucket has, also with a hook and after
    torch.compile."""
    done = job(3, "failing.py", case)
    lines = sorted(done.stdout.splitlines())
    assert len(lines) == 3, done.stdout + done.stderr
    for rank, line in enumerate(lines):
        assert f"(failing.py:{USUAL})" in line and f"(failing.py:{line_of('# backward')})" in line
        assert ("gradients of 1.bias, 1.weight, 0.bias, 0.weight" in line) == (rank != 2), line


def test_forked():
    """A child of fork has no part in the job: the sum after it is right."""
    done = job(3, "failing.py", "forked")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all("which a rank of the job has forked, calls lockstep (failing.py:" in line
                                   for line in lines), lines


def test_one_thread():
    done = job(2, "failing.py", "one-thread")
    assert re.search(r"^lockstep: error: .*expected MPI_THREAD_MULTIPLE", done.stderr, re.MULTILINE), done.stderr
    assert done.returncode != 0


@pytest.mark.parametrize("case, line", [("late", USUAL), ("late-for-nobody", line_of("# late for nobody"))])
def test_late(case, line):
    done = job(3, "failing.py", case, "--timeout", "4")
    assert re.search(r"lockstep: replica 2 .* is late: .*all_reduce|lockstep: replica 2 .* is late: request", done.stderr)
    assert f"failing.py:{line}" in done.stderr
    assert done.returncode == 5


@pytest.mark.parametrize("case, first, second", [
    ("no-send", "recv of float32[4] from rank 0 ({0}) has waited for 3 s on replica 2, while replica 0 waits at barrier ({1})",
     ""),
    ("two-recvs", "recv of float32[4] from rank 2 ({0}) has waited for 3 s on replica 0, while replica 2 waits at recv of "
     "float32[4] from rank 0 ({1})", ""),
    ("two-groups", "replica 0", "have waited for each other for 3 s"),
])
def test_waits_for_each_other(case, first, second):
    """A warning comes long before the job ends."""
    done = job(3, "failing.py", case, "--timeout", "7")
    places = [f"failing.py:{line_of('# ' + case + ending)}" for ending in (" 1", " 2")]
    warnings = [line for line in done.stderr.splitlines() if "warning: " in line]
    assert len(warnings) == 1, done.stderr
    assert first.format(*places) in warnings[0] and second in warnings[0]
    assert all(place in warnings[0] for place in places)
    assert done.returncode != 0


def test_working_alone():
    done = job(3, "failing.py", "alone", "--timeout", "3")
    assert (done.returncode, done.stderr) == (0, "")


def test_left():
    """A rank that ends while others call something is named at once."""
    begun = time.monotonic()
    done = job(3, "failing.py", "left", "--timeout", "30")
    assert re.search(r"lockstep: replica 2 .* called exit\(0\) before the end of the job", done.stderr), done.stderr
    assert done.returncode == 4 and time.monotonic() - begun < 30


def test_stopped():
    done = job(3, "failing.py", "stopped", "--timeout", "4")
    assert re.search(r"lockstep: replica 2 ", done.stderr), done.stderr
    assert done.returncode == 5


@pytest.mark.skipif(TORCH < (2, 14), reason="this PyTorch has it for gloo alone")
def test_monitored_barrier():
    done = job(3, "failing.py", "monitored")
    assert "rank 2 did not come within 1 s" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("case, backend", [
    ("interrupted", "lockstep"), ("interrupted-array", "lockstep"), ("interrupted-then", "lockstep_gloo"),
])
def test_interrupt(case, backend):
    """Ctrl-C reaches a rank that waits for another one, outside of Python."""
    with subprocess.Popen(command(2, "failing.py", case, "--backend", backend), env=ENVIRONMENT, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        waiting = re.fullmatch(r"0: process (\d+) waits\n", process.stdout.readline())
        os.kill(int(waiting[1]), signal.SIGINT)
        _, told = process.communicate(timeout=10)
    assert "KeyboardInterrupt" in told and "lockstep: replica 0 " in told, told


def test_quiet_end():
    done = job(2, "failing.py", "quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
