#!/usr/bin/env python3
"""Trains the models of scripts/peers with DistributedDataParallel in two processes and with torch-jobs on two ranks,
from the same weights on the same samples, in f64: train_like_ddp.py COMMAND..., where COMMAND starts the job models of
torch-jobs. The first 5 losses must be equal to 1e-12. Exits with 77, a skipped test, without PyTorch."""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} has no PyTorch: {error}")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/peers"))
from exchanged_files import bytes_of, read_safetensors, write_safetensors
from measure import CLASSES, CONTEXT, SIDE, VOCABULARY
from pytorch_models import loss_of, make_model, make_optimizer

RANKS, STEPS, TOLERANCE = 2, 5, 1e-12
SAMPLES = {"mlp": 6, "convnet": 2, "gpt": 1}  # of a rank in a step
# Where the module of the C++ program keeps its layers.
PREFIX = {"mlp": "all.", "convnet": "all.", "gpt": ""}


def make_samples(model, rank):
    torch.manual_seed(100 + rank)
    if model == "gpt":
        text = torch.randint(VOCABULARY, (STEPS, SAMPLES[model], CONTEXT + 1))
        return text[:, :, :-1].contiguous(), text[:, :, 1:].reshape(STEPS, -1)
    return (torch.rand(STEPS, SAMPLES[model], 1, SIDE, SIDE, dtype=torch.float64),
            torch.randint(CLASSES, (STEPS, SAMPLES[model])))


def train_as_replica(model, folder, rank):
    """In one of the processes of DDP. The first one prints the losses."""
    net = make_model(model, channels_last=False).double()
    weights = read_safetensors(folder / "weights.safetensors")
    net.load_state_dict({name.removeprefix(PREFIX[model]): tensor for name, tensor in weights.items()}, strict=True)
    replica = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = make_optimizer(model, replica.parameters())
    for inputs, labels in zip(*make_samples(model, rank)):
        optimizer.zero_grad()
        loss = loss_of(replica(inputs), labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach() / RANKS
        torch.distributed.all_reduce(mean)
        if rank == 0:
            print(repr(mean.item()))


def train_all_as_replica(folder):
    """Each model, in one process: PyTorch takes longer to start than to train one of them."""
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank,
                                         world_size=RANKS)
    for model in SAMPLES:
        train_as_replica(model, folder / model, rank)
    torch.distributed.destroy_process_group()


def losses_of_ddp(folder):
    """Of each model."""
    processes = [subprocess.Popen([sys.executable, __file__, "--replica", str(folder)], stdout=subprocess.PIPE,
                                  text=True, env=os.environ | {"RANK": str(rank)})
                 for rank in range(RANKS)]
    printed = [process.communicate()[0] for process in processes]
    assert all(process.returncode == 0 for process in processes), "DistributedDataParallel failed"
    losses = [float(line) for line in printed[0].split()]
    assert len(losses) == len(SAMPLES) * STEPS, f"DistributedDataParallel printed {len(losses)} losses"
    return {model: losses[place * STEPS:(place + 1) * STEPS] for place, model in enumerate(SAMPLES)}


def write_files(model, folder):
    """What both train from, and on."""
    folder.mkdir()
    torch.manual_seed(1)
    weights = make_model(model, channels_last=False).double().state_dict()
    write_safetensors(folder / "weights.safetensors", {PREFIX[model] + name: each for name, each in weights.items()})
    for rank in range(RANKS):
        for what, tensor in zip(("inputs", "labels"), make_samples(model, rank)):
            (folder / f"rank-{rank}-{what}").write_bytes(bytes_of(tensor.double()))


def compare(command, model, folder, expected):
    done = subprocess.run([*command, model, str(folder)], stdout=subprocess.PIPE, text=True, check=True)
    found = [float(line) for line in done.stdout.split()]
    assert len(found) == STEPS, f"{model}: {len(found)} losses; expected {STEPS}"
    furthest = max(abs(ours / theirs - 1) for ours, theirs in zip(found, expected))
    assert furthest <= TOLERANCE, f"{model}: losses differ by {furthest}: {found}; expected {expected}"
    assert len(set(expected)) == STEPS, f"{model}: nothing was trained"
    print(f"PyTorch {torch.__version__}, {model}: {STEPS} losses are those of DDP to {furthest:.1e}")


def main():
    if sys.argv[1] == "--replica":
        return train_all_as_replica(pathlib.Path(sys.argv[2]))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in SAMPLES:
            write_files(model, folder / model)
        expected = losses_of_ddp(folder)
        for model in SAMPLES:
            compare(sys.argv[1:], model, folder / model, expected[model])


if __name__ == "__main__":
    main()
