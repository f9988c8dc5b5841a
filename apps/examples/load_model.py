#!/usr/bin/env python3
"""Rebuilds a model of lockstep-train in PyTorch from its weights alone, and predicts with it.

  load_model.py WEIGHTS FILE

WEIGHTS is a file of --export, or a checkpoint. FILE is what --predict takes: an IDX file, an .npy array or a CSV file,
plain or packed (gzip), or for a gpt a text. Prints a JSON line for each sample, or for each line of the text: the
probability of each class, the number that a regression predicts, or the probability of each byte that may come next.

Needs NumPy and PyTorch, and nothing of lockstep: docs/reference.md describes the file. Computes in f64, whatever the
weights are."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import pathlib
import struct
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Description = dict[str, Any]


class Weights:
    """The tensors of a file, and what it says of the model and its data."""

    def __init__(self, path: pathlib.Path) -> None:
        content = (path / "weights.safetensors" if path.is_dir() else path).read_bytes()
        (length,) = struct.unpack_from("<Q", content)
        header = json.loads(content[8:8 + length])
        described = header.pop("__metadata__", {})
        self.model: Description = json.loads(described["lockstep.model"])
        self.data: Description = json.loads(described["lockstep.data"])
        types = {"F32": "<f4", "F64": "<f8"}
        elements = memoryview(content)[8 + length:]
        self.tensors = {name: torch.from_numpy(np.frombuffer(elements[slice(*entry["data_offsets"])],
                                                             types[entry["dtype"]]).reshape(entry["shape"]).astype(np.float64))
                        for name, entry in header.items()}

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]


def dense(weights: Weights, name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}/weight"] + weights[f"{name}/bias"]


class Mlp(nn.Module):
    """From samples of any shape to logits, or to one number."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights
        self.layers = len(weights.model["hidden"]) + 1

    def forward(self, samples: Tensor) -> Tensor:
        x = samples.flatten(1)
        for layer in range(self.layers):
            x = dense(self.weights, f"dense_{layer}", x)
            if layer + 1 < self.layers:
                x = functional.relu(x)
        return x


class Convnet(nn.Module):
    """From images [images, height, width] or [images, height, width, channels] to logits."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, images: Tensor) -> Tensor:
        x = images.unsqueeze(1) if images.dim() == 3 else images.permute(0, 3, 1, 2)
        x = self.stage(x, 0)
        x = functional.max_pool2d(self.stage(x, 1), self.weights.model["form"]["pool"])
        x = x.permute(0, 2, 3, 1).flatten(1)  # the dense layers take channels last
        return dense(self.weights, "dense_1", functional.relu(dense(self.weights, "dense_0", x)))

    def stage(self, x: Tensor, index: int) -> Tensor:
        weights, form = self.weights, self.weights.model["form"]
        x = functional.conv2d(x, weights[f"conv_{index}/weight"].permute(3, 2, 0, 1), weights[f"conv_{index}/bias"],
                              stride=form["stride"], padding=form["padding"])
        if weights.model["batch_norm"] != "none":
            norm = f"batch_norm_{index}"
            x = functional.batch_norm(x, weights[f"{norm}/moving_mean"], weights[f"{norm}/moving_variance"],
                                      weights[f"{norm}/gamma"], weights[f"{norm}/beta"], eps=form["epsilon"])
        return functional.relu(x)


class Gpt(nn.Module):
    """From tokens [windows, positions], at most `context` of them, to the logits of the token after each."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, tokens: Tensor) -> Tensor:
        weights = self.weights
        x = weights["token_embedding"][tokens] + weights["position_embedding"][:tokens.shape[1]]
        for layer in range(weights.model["layers"]):
            block = f"block_{layer}"
            x = x + self.attention(f"{block}/attention", self.norm(f"{block}/attention_norm", x))
            expanded = self.gelu(dense(weights, f"{block}/expand", self.norm(f"{block}/mlp_norm", x)))
            x = x + dense(weights, f"{block}/contract", expanded)
        return self.norm("final_norm", x) @ weights["token_embedding"].T

    def norm(self, name: str, x: Tensor) -> Tensor:
        gain = self.weights[f"{name}/gain"]
        return functional.layer_norm(x, gain.shape, gain, self.weights[f"{name}/bias"],
                                     self.weights.model["form"]["epsilon"])

    def attention(self, name: str, x: Tensor) -> Tensor:
        windows, positions, width = x.shape
        heads = self.weights.model["heads"]
        # [3, windows, heads, positions, width of a head]
        qkv = dense(self.weights, f"{name}/qkv", x).reshape(windows, positions, 3, heads, width // heads)
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(2, 3) / math.sqrt(width // heads)
        later = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -math.inf).softmax(-1) @ values
        return dense(self.weights, f"{name}/output", mixed.transpose(1, 2).reshape(windows, positions, width))

    @staticmethod
    def gelu(x: Tensor) -> Tensor:
        return x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def load_model(weights: Weights) -> nn.Module:
    return {"mlp": Mlp, "convnet": Convnet, "gpt": Gpt}[weights.model["kind"]](weights)


# Samples.


def read_bytes(path: pathlib.Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content


def read_samples(path: pathlib.Path, weights: Weights) -> Tensor:
    """The samples of a file, [samples, ...]. Bytes become numbers from 0 to 1, and columns are scaled as in the training."""
    content = read_bytes(path)
    if content.startswith(b"\x93NUMPY"):
        samples = np.load(io.BytesIO(content))
    elif content.startswith(b"\0\0\x08"):
        extents = struct.unpack_from(f">{content[3]}I", content, 4)
        samples = np.frombuffer(content, np.uint8, offset=4 + 4 * len(extents)).reshape(extents)
    else:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8-sig")), skipinitialspace=True)
        samples = np.array([[float(row[column]) for column in weights.data["columns"]] for row in rows])
        if "means" in weights.data:
            samples = (samples - weights.data["means"]) / weights.data["deviations"]
    return torch.from_numpy(samples / 255 if samples.dtype == np.uint8 else samples.astype(np.float64))


def predictions(path: pathlib.Path, weights: Weights) -> list[dict[str, Any]]:
    model = load_model(weights)
    if weights.data.get("task") == "regression":
        unit, mean = weights.data.get("label_deviation", 1), weights.data.get("label_mean", 0)
        return [{"value": output * unit + mean} for output in model(read_samples(path, weights))[:, 0].tolist()]
    if weights.model["kind"] != "gpt":
        return [{"probabilities": row.tolist()} for row in model(read_samples(path, weights)).softmax(-1)]
    lines = []
    for line in read_bytes(path).removesuffix(b"\n").split(b"\n"):
        prompt = (b"\n" + line)[-weights.model["context"]:]
        lines.append({"probabilities": model(torch.tensor([list(prompt)]))[0, -1].softmax(-1).tolist()})
    return lines


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with torch.no_grad():
        for index, each in enumerate(predictions(pathlib.Path(sys.argv[2]), Weights(pathlib.Path(sys.argv[1])))):
            print(json.dumps({"index": index, **each}))


if __name__ == "__main__":
    main()
