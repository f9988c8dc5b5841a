#!/usr/bin/env python3
"""Trains lockstep-train's models with PyTorch, for losses to compare lockstep's with.

  pytorch_losses.py BUILD             computes every curve of curves.json, beside this file, again
  pytorch_losses.py BUILD OPTION...   trains with these options of lockstep-train, here and there, and prints both
                                      losses of each of the first 20 steps and their difference

BUILD is a build folder of lockstep. Its training-start writes what only lockstep knows: the initial weights, and which
samples each step takes. Everything else is read, cut, computed and differentiated here, by PyTorch, in double precision.
A loss is the mean over the step's batch, before its update. Dropout is not among the options, because its masks are
lockstep's own."""

from __future__ import annotations

import argparse
import functools
import gzip
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CURVES = HERE / "curves.json"
STEPS = 20
ROUNDED_RUNS = 100
NARROW_RUNS = 20

Weights = dict[str, Tensor]


def parse_options(arguments: list[str]) -> argparse.Namespace:
    """Options of lockstep-train, with its defaults. Sizes of layers are those of the initial weights."""
    parser = argparse.ArgumentParser("OPTION...", allow_abbrev=False)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--model", choices=["mlp", "convnet", "gpt"], default="mlp")
    parser.add_argument("--batch-norm", action="store_true")
    parser.add_argument("--sync-batch-norm", action="store_true")
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--global-batch", type=int)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--optimizer", choices=["sgd", "momentum", "adamw"])
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--schedule", choices=["constant", "cosine"], default="constant")
    parser.add_argument("--warmup-steps", type=int, default=0)
    parser.add_argument("--weight-decay", type=float, default=0.0)
    parser.add_argument("--clip-norm", type=float, default=math.inf)
    parser.add_argument("--shards", type=lambda text: 1 if text == "ranks" else int(text), default=8)
    for of_lockstep_alone in ["classes", "hidden", "layers", "embed", "seed", "dtype", "kernels", "threads", "eval-every",
                              "attest-every", "precision"]:
        parser.add_argument(f"--{of_lockstep_alone}")
    options = parser.parse_args(arguments)
    text = options.model == "gpt"
    options.epochs = options.epochs or (1 if text else 5)
    options.global_batch = options.global_batch or (16 if text else 256)
    options.optimizer = options.optimizer or ("adamw" if text else "momentum")
    options.learning_rate = options.learning_rate or (0.001 if options.optimizer == "adamw" else 0.1)
    return options


# What a run begins with.


@dataclass
class Samples:
    """The inputs of a model, and its labels. The first dimension of both is the sample."""
    inputs: Tensor
    labels: Tensor


@dataclass
class Start:
    weights: Weights
    batches: list[list[int]]  # the samples of each of the first steps


def read_bytes(path: pathlib.Path) -> bytes:
    """The file, unpacked if it is gzip's."""
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def read_idx(folder: pathlib.Path, name: str) -> np.ndarray:
    """The bytes of an IDX file in its shape. The file holds a magic number, whose last byte is the number of extents,
    then the extents, then the bytes."""
    path = folder / name
    content = read_bytes(path if path.exists() else folder / f"{name}.gz")
    extents = struct.unpack_from(f">{content[3]}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(extents)).reshape(extents)


def load_images(folder: pathlib.Path) -> Samples:
    """Pixels as bytes [images, rows, columns] or, in colour, [images, rows, columns, channels], and their classes."""
    if (folder / "x_train.npy").exists():
        return Samples(torch.tensor(np.load(folder / "x_train.npy")),
                       torch.tensor(np.load(folder / "y_train.npy").astype(np.int64)))
    images = torch.tensor(read_idx(folder, "train-images-idx3-ubyte"))
    return Samples(images, torch.tensor(read_idx(folder, "train-labels-idx1-ubyte"), dtype=torch.int64))


def load_text(path: pathlib.Path, context: int) -> Samples:
    """All but the last tenth of a text, cut into samples of `context` bytes; the label of a byte is the next one."""
    text = torch.tensor(np.frombuffer(read_bytes(path), np.uint8), dtype=torch.int64)
    text = text[:len(text) - len(text) // 10]
    used = (len(text) - 1) // context * context
    return Samples(text[:used].reshape(-1, context), text[1:used + 1].reshape(-1, context))


def load_samples(options: argparse.Namespace) -> Samples:
    return load_text(options.data, options.context) if options.model == "gpt" else load_images(options.data)


def read_safetensors(path: pathlib.Path) -> Weights:
    """The tensors of a checkpoint: 8 bytes with the length of a header, the header in JSON, the elements."""
    content = path.read_bytes()
    length = struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    elements = content[8 + length:]
    types = {"F32": "<f4", "F64": "<f8"}
    return {name: torch.tensor(np.frombuffer(elements[slice(*entry["data_offsets"])], types[entry["dtype"]])
                               .reshape(entry["shape"]))
            for name, entry in header.items()}


def run(*command: str | pathlib.Path) -> None:
    """Runs a program of lockstep's. If it fails, shows its output and ends."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}pytorch_losses.py: {command[0]} failed")


def training_start(build: pathlib.Path, arguments: list[str]) -> Start:
    with tempfile.TemporaryDirectory() as folder:
        run(build / "tests/losses/training-start", folder, str(STEPS), *arguments)
        batches = json.loads(pathlib.Path(folder, "samples.json").read_text())
        return Start(read_safetensors(pathlib.Path(folder, "weights.safetensors")), batches)


# Models: PyTorch's modules, given lockstep's initial weights in PyTorch's layout.


def with_values(module: nn.Module, **values: Tensor) -> nn.Module:
    """The module with these parameters, which must be all of its parameters, in their shapes."""
    module.load_state_dict(values)
    return module


def linear_values(weights: Weights, name: str, prefix: str = "") -> Weights:
    """The weight of a dense layer is [inputs, outputs] in lockstep, and the other way round in PyTorch."""
    return {f"{prefix}weight": weights[f"{name}/weight"].T, f"{prefix}bias": weights[f"{name}/bias"]}


def linear(weights: Weights, name: str) -> nn.Module:
    return with_values(nn.Linear(*weights[f"{name}/weight"].shape), **linear_values(weights, name))


def convolution(weights: Weights, name: str) -> nn.Module:
    weight = weights[f"{name}/weight"].permute(3, 2, 0, 1)  # from [rows, columns, inputs, outputs]
    outputs, inputs, *kernel = weight.shape
    return with_values(nn.Conv2d(inputs, outputs, kernel), weight=weight, bias=weights[f"{name}/bias"])


def batch_norm(weights: Weights, name: str) -> nn.Module:
    gamma = weights[f"{name}/gamma"]
    return with_values(nn.BatchNorm2d(len(gamma), eps=1e-5, track_running_stats=False), weight=gamma,
                       bias=weights[f"{name}/beta"])


def mlp(weights: Weights) -> nn.Module:
    layers = sum(name.endswith("/weight") for name in weights)
    hidden = [module for layer in range(layers - 1) for module in (linear(weights, f"dense_{layer}"), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, linear(weights, f"dense_{layers - 1}"))


class ChannelsFirst(nn.Module):
    """Images as a convolution takes them: channel by channel, and each row by row."""

    def forward(self, images: Tensor) -> Tensor:
        return images.unsqueeze(1) if images.dim() == 3 else images.permute(0, 3, 1, 2)


class ChannelsLast(nn.Module):
    """Images as a dense layer takes them: row by row, column by column, with the channels last."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 2, 3, 1).flatten(1)


def convnet(weights: Weights, with_norm: bool) -> nn.Module:
    norms = [[batch_norm(weights, f"batch_norm_{stage}")] if with_norm else [] for stage in range(2)]
    return nn.Sequential(
        ChannelsFirst(),
        convolution(weights, "conv_0"), *norms[0], nn.ReLU(),
        convolution(weights, "conv_1"), *norms[1], nn.ReLU(), nn.MaxPool2d(2),
        ChannelsLast(),
        linear(weights, "dense_0"), nn.ReLU(),
        linear(weights, "dense_1"))


class OfPixels(nn.Module):
    """A model of numbers from 0 to 1, given bytes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixels / 255)


def layer_norm_values(weights: Weights, name: str, prefix: str = "") -> Weights:
    return {f"{prefix}weight": weights[f"{name}/gain"], f"{prefix}bias": weights[f"{name}/bias"]}


def transformer_block(weights: Weights, name: str, heads: int) -> nn.Module:
    """Norms before attention and before the two dense layers, with GELU in its tanh form between these."""
    width = len(weights[f"{name}/attention_norm/gain"])
    gelu = functools.partial(functional.gelu, approximate="tanh")
    block = nn.TransformerEncoderLayer(width, heads, dim_feedforward=4 * width, dropout=0.0, activation=gelu,
                                       layer_norm_eps=1e-5, batch_first=True, norm_first=True)
    return with_values(block,
                       **layer_norm_values(weights, f"{name}/attention_norm", "norm1."),
                       **linear_values(weights, f"{name}/attention/qkv", "self_attn.in_proj_"),
                       **linear_values(weights, f"{name}/attention/output", "self_attn.out_proj."),
                       **layer_norm_values(weights, f"{name}/mlp_norm", "norm2."),
                       **linear_values(weights, f"{name}/expand", "linear1."),
                       **linear_values(weights, f"{name}/contract", "linear2."))


def embedding(weights: Weights, name: str) -> nn.Module:
    return with_values(nn.Embedding(*weights[name].shape), weight=weights[name])


class Gpt(nn.Module):
    """The vectors of bytes also give the logits of the next one."""

    def __init__(self, weights: Weights, heads: int) -> None:
        super().__init__()
        self.tokens = embedding(weights, "token_embedding")
        self.positions = embedding(weights, "position_embedding")
        blocks = sum(name.endswith("/attention_norm/gain") for name in weights)
        self.blocks = nn.ModuleList(transformer_block(weights, f"block_{index}", heads) for index in range(blocks))
        norm = layer_norm_values(weights, "final_norm")
        self.norm = with_values(nn.LayerNorm(len(norm["weight"]), eps=1e-5), **norm)

    def forward(self, tokens: Tensor) -> Tensor:
        context = tokens.shape[1]
        later = torch.ones(context, context, dtype=torch.bool).triu(1)
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x, src_mask=later)
        return functional.linear(self.norm(x), self.tokens.weight)


def make_model(weights: Weights, options: argparse.Namespace) -> nn.Module:
    match options.model:
        case "mlp":
            model = OfPixels(mlp(weights))
        case "convnet":
            model = OfPixels(convnet(weights, options.batch_norm or options.sync_batch_norm))
        case "gpt":
            model = Gpt(weights, options.heads)
    learned = sum(tensor.numel() for name, tensor in weights.items() if "/moving_" not in name)
    if learned != sum(parameter.numel() for parameter in model.parameters()):
        sys.exit(f"pytorch_losses.py: the {options.model} has {learned} weights in lockstep, and another number here")
    return model


# Training.


def make_optimizer(model: nn.Module, options: argparse.Namespace) -> torch.optim.Optimizer:
    """Matrices, filters and embeddings decay; parameters of one dimension do not."""
    parameters = list(model.parameters())
    groups = [{"params": [each for each in parameters if each.dim() >= 2], "weight_decay": options.weight_decay},
              {"params": [each for each in parameters if each.dim() < 2], "weight_decay": 0.0}]
    if options.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=options.learning_rate, betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(groups, lr=options.learning_rate,
                           momentum=options.momentum if options.optimizer == "momentum" else 0.0)


def make_schedule(optimizer: torch.optim.Optimizer, steps: int,
                  options: argparse.Namespace) -> lr_scheduler.LRScheduler:
    """Rises in equal steps, the first one included, to the peak after the warm-up. Then falls along half a cosine wave,
    which would reach 0 in the step after the last."""
    warmup = options.warmup_steps
    rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
    if options.schedule == "constant":
        return rise
    fall = lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps - warmup)
    return lr_scheduler.SequentialLR(optimizer, [rise, fall], milestones=[warmup]) if warmup > 0 else fall


def pieces_of(batch: list[int], pieces: int) -> list[list[int]]:
    """Adjacent pieces; piece i begins at floor(i * samples / pieces)."""
    cuts = [len(batch) * piece // pieces for piece in range(pieces + 1)]
    return [batch[first:last] for first, last in zip(cuts, cuts[1:])]


def computed_together(batch: list[int], options: argparse.Namespace) -> list[list[int]]:
    """The samples that a batch norm sees at once: a micro-batch of one shard, or of all of them."""
    shards = [pieces_of(shard, options.accumulate) for shard in pieces_of(batch, options.shards)]
    if options.sync_batch_norm:
        shards = [[sum(of_each_shard, []) for of_each_shard in zip(*shards)]]
    return [micro_batch for shard in shards for micro_batch in shard if micro_batch]


def mean_loss(model: nn.Module, samples: Samples, batch: list[int], options: argparse.Namespace,
              precision: str) -> Tensor:
    """The mean over all labels of the batch."""
    micro_batches = computed_together(batch, options)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        logits = torch.cat([model(samples.inputs[each]) for each in micro_batches])
        labels = torch.cat([samples.labels[each] for each in micro_batches])
        return functional.cross_entropy(logits.flatten(0, -2), labels.flatten())


def clip(model: nn.Module, largest: float) -> None:
    """Clips to exactly this norm: PyTorch's clip_grad_norm_ divides by the norm plus a millionth."""
    gradients = [parameter.grad for parameter in model.parameters()]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients]))
    if norm > largest:
        for gradient in gradients:
            gradient.mul_(largest / norm)


def train(model: nn.Module, samples: Samples, batches: list[list[int]], steps: int, options: argparse.Namespace,
          precision: str = "full") -> Iterator[float]:
    """The loss of each batch, in a run of so many steps."""
    optimizer = make_optimizer(model, options)
    schedule = make_schedule(optimizer, steps, options)
    for batch in batches[:steps]:
        optimizer.zero_grad()
        loss = mean_loss(model, samples, batch, options, precision)
        yield loss.item()
        loss.backward()
        clip(model, options.clip_norm)
        optimizer.step()
        schedule.step()


@dataclass
class Curve:
    losses: list[float]
    rounding: float  # how far single precision takes PyTorch from them: the largest relative difference
    bf16_rounding: float  # the same for PyTorch's autocast to bf16


def relative_difference(loss: float, exact: float) -> float:
    return abs(loss - exact) / abs(exact)


def last_bits_changed(weights: Weights, seed: int) -> Weights:
    """Changes the weights by about as much as single precision rounds."""
    generator = torch.Generator().manual_seed(seed)
    return {name: tensor * (1 + 2**-24 * torch.randn(tensor.shape, dtype=tensor.dtype, generator=generator))
            for name, tensor in weights.items()}


def pytorch_curve(build: pathlib.Path, arguments: list[str]) -> Curve:
    """The losses of the first steps of a run with these options of lockstep-train."""
    options = parse_options(arguments)
    start = training_start(build, arguments)
    samples = load_samples(options)
    steps = options.steps or options.epochs * math.ceil(len(samples.labels) / options.global_batch)

    def losses_in(dtype: torch.dtype, weights: Weights, precision: str = "full") -> list[float]:
        torch.set_default_dtype(dtype)
        return list(train(make_model(weights, options), samples, start.batches, steps, options, precision))

    losses = losses_in(torch.float64, start.weights)

    def largest_difference(runs: int, precision: str) -> float:
        """Over runs in single precision that begin with different low-order bits."""
        rounded = [losses_in(torch.float32, last_bits_changed(start.weights, run), precision) for run in range(runs)]
        return max(relative_difference(*pair) for run in rounded for pair in zip(run, losses))

    return Curve(losses, largest_difference(ROUNDED_RUNS, "full"), largest_difference(NARROW_RUNS, "bf16"))


# What is asked for.


def make_curves(build: pathlib.Path) -> None:
    os.chdir(ROOT)  # where the options' files are
    table = json.loads(CURVES.read_text())
    table["pytorch"] = torch.__version__
    for entry in table["curves"]:
        curve = pytorch_curve(build, [*entry["options"].split(), "--dtype", "f64"])
        entry["rounding"] = float(f"{curve.rounding:.1e}")
        entry["bf16_rounding"] = float(f"{curve.bf16_rounding:.1e}")
        entry["bf16_rounding"] = float(f"{curve.bf16_rounding:.1e}")
        entry["losses"] = curve.losses
    CURVES.write_text(json.dumps(table, indent=2) + "\n")


def lockstep_losses(build: pathlib.Path, arguments: list[str]) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder, "metrics.jsonl")
        run(build / "apps/lockstep-train", *arguments, "--metrics", metrics)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "train"]


def compare(build: pathlib.Path, arguments: list[str]) -> None:
    curve = pytorch_curve(build, arguments)
    print("step\tpytorch\tlockstep\trelative difference")
    for step, (exact, loss) in enumerate(zip(curve.losses, lockstep_losses(build, arguments)), start=1):
        print(f"{step}\t{exact!r}\t{loss!r}\t{relative_difference(loss, exact):.1e}")
    print(f"PyTorch in single precision: up to {curve.rounding:.1e} from PyTorch in double precision")
    print(f"PyTorch with autocast to bf16: up to {curve.bf16_rounding:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD", type=lambda text: pathlib.Path(text).resolve(),
                        help="where lockstep-train and training-start were built")
    parser.add_argument("options", metavar="OPTION", nargs=argparse.REMAINDER, help="of lockstep-train")
    arguments = parser.parse_args()
    # It is PyTorch's own SequentialLR that calls it with an epoch.
    warnings.filterwarnings("ignore", r"The epoch parameter in `scheduler.step\(\)`")
    if arguments.options:
        compare(arguments.build, arguments.options)
    else:
        make_curves(arguments.build)


if __name__ == "__main__":
    main()
