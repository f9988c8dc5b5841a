#!/usr/bin/env python3
"""Trains lockstep's models with PyTorch on one GPU, and prints the time of a step: a JSON object a model, as the programs
in peers do (peers/measure.py). gpu-check runs it beside lockstep. Modes:

eager     as it comes
graph     a whole step, with the optimizer's part, in a CUDA graph that is replayed
compiled  the model compiled by torch.compile

Products are of f32, without TF32, and the optimizer is fused where PyTorch has such a one. Each step copies its samples
from pinned memory to the GPU, as lockstep does. Exits with 77 and one line if this PyTorch cannot run the mode.
"""
import argparse
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))

import torch  # noqa: E402

import measure as sizes  # noqa: E402
from pytorch_models import count, loss_of, make_batches, make_model, make_optimizer  # noqa: E402

# Steps of a GPU are short: more blocks than on a CPU, of STEPS_OF_BLOCK each.
BLOCKS = {"mlp": (10, 60), "convnet": (5, 20), "gpt": (5, 20)}


def version():
    return tuple(map(int, torch.__version__.split(".")[:2]))


def optimizer_options(name, device, mode):
    """What helps on a GPU, and what a capture needs there."""
    if device.type != "cuda":
        return {}
    adam = name == "gpt"
    options = {"fused": True} if version() >= ((2, 0) if adam else (2, 3)) else {}
    return {**options, "capturable": True} if adam and mode == "graph" else options


def captured(train, inputs, labels):
    """A function that trains again on what is in the same memory. Without a GPU there is nothing to capture."""
    if inputs.device.type != "cuda":
        return lambda: train(inputs, labels)
    # The first passes allocate and choose kernels, which a capture forbids; PyTorch wants them on another stream.
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            train(inputs, labels)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train(inputs, labels)

    def replay():
        graph.replay()
        return loss
    return replay


def make_step(mode, name, model, data, device):
    """`step(batch number)`, as measure() wants it."""
    optimizer = make_optimizer(name, model.parameters(), **optimizer_options(name, device, mode))
    forward = torch.compile(model) if mode == "compiled" else model

    def train(inputs, labels):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(forward(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    if mode == "graph":
        # A batch of its own: on a CPU, `to` would be the data themselves.
        place = [part.to(device, copy=True) for part in data[0]]
        replay = captured(train, *place)

        def step(number):
            for to, part in zip(place, data[number]):
                to.copy_(part, non_blocking=True)
            return replay()
        return step
    return lambda number: train(*(part.to(device, non_blocking=True) for part in data[number]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("eager", "graph", "compiled"))
    parser.add_argument("model", nargs="+", choices=list(BLOCKS))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to try this program itself")
    parser.add_argument("--batch", type=int, help="samples of a step, instead of lockstep's")
    parser.add_argument("--blocks", type=int, nargs=2, metavar=("WARM", "COUNTED"), help="how many are measured")
    options = parser.parse_args()
    if options.mode == "compiled" and not hasattr(torch, "compile"):
        print(f"PyTorch {torch.__version__} has no torch.compile", file=sys.stderr)
        return 77
    device = torch.device(options.device)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    for name in options.model:
        sizes.BLOCKS[name] = tuple(options.blocks or BLOCKS[name])
        sizes.BATCH[name] = options.batch or sizes.BATCH[name]
        model = make_model(name, channels_last=False).to(device)
        data = make_batches(name, 0, 1, channels_last=False)
        if device.type == "cuda":
            data = [tuple(part.pin_memory() for part in batch) for batch in data]
        measured = sizes.measure(name, make_step(options.mode, name, model, data, device))
        sizes.report(0, "PyTorch", torch.__version__, options.mode, name, count(model), measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
