#!/usr/bin/env python3
"""Trains small models with lockstep-train and predicts with them there and, rebuilt from their weights by
apps/examples/load_model.py, in PyTorch: rebuilt_models.py LOCKSTEP_TRAIN ROOT. Probabilities must be equal to 1e-6,
which is the rounding of f32, and the values of a regression to 1e-6 of their size. Exits with 77, a skipped test, without PyTorch."""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print(f"skipped: {sys.executable} has no PyTorch: {error}")
    sys.exit(77)

TRAIN, ROOT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path.append(str(ROOT / "apps/examples"))
import load_model

MARGIN = 1e-6


def lockstep_train(*arguments):
    done = subprocess.run([TRAIN, "--quiet", "--device", "cpu", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}lockstep-train {' '.join(map(str, arguments))} failed")
    return done.stdout


def table(columns, rows):
    lines = [",".join(columns)]
    for row in range(rows):
        a, b = row * 7 % 13, row * 5 % 11
        values = {"a": a, "b": b + 0.5, "kind": "left" if a > b else "right", "c": row % 3,
                  "price": 5000 + 100 * a - 20 * b}
        lines.append(",".join(str(values[column]) for column in columns))
    return "\n".join(lines) + "\n"


def check(folder, name, options, data, file, classes):
    weights = folder / f"{name}.safetensors"
    lockstep_train("--data", data, "--export", weights, *options)
    said = lockstep_train("--predict", file, "--init-from", weights, "--top", classes)
    found = [{each["class"]: each["probability"] for each in json.loads(line)["top"]} for line in said.splitlines()]
    with torch.no_grad():
        rebuilt = load_model.predictions(file, load_model.Weights(weights))
    assert len(found) == len(rebuilt) > 1, (name, len(found), len(rebuilt))
    furthest = 0.0
    for theirs, ours in zip(rebuilt, found):
        assert sorted(ours) == list(range(classes)), (name, ours)
        furthest = max(furthest, *(abs(theirs["probabilities"][number] - ours[number]) for number in ours))
    assert max(rebuilt[0]["probabilities"]) != max(rebuilt[1]["probabilities"]), f"{name} predicts the same of all"
    print(f"{name}: {len(found)} samples, furthest {furthest:.2e}")
    assert furthest <= MARGIN, (name, furthest)


def check_regression(folder):
    weights, file = folder / "regression.safetensors", folder / "others.csv"
    lockstep_train("--data", folder / "train.csv", "--export", weights, "--task", "regression", "--scale", "standard",
                   "--label-column", "price", "--hidden", "16,8", "--steps", "40")
    found = [json.loads(line)["value"] for line in lockstep_train("--predict", file, "--init-from", weights).splitlines()]
    with torch.no_grad():
        rebuilt = [each["value"] for each in load_model.predictions(file, load_model.Weights(weights))]
    assert len(found) == len(rebuilt) > 1, (len(found), len(rebuilt))
    assert max(found) - min(found) > 100, "the regression predicts the same of all"
    furthest = max(abs(theirs / ours - 1) for theirs, ours in zip(rebuilt, found))
    print(f"regression: {len(found)} samples, furthest {furthest:.2e}")
    assert furthest <= MARGIN, furthest


with tempfile.TemporaryDirectory() as given:
    folder = pathlib.Path(given)
    (folder / "train.csv").write_text(table(["b", "kind", "c", "a"], 150))
    (folder / "others.csv").write_text(table(["a", "b", "c"], 20))
    (folder / "lines").write_text("the\n\na line that is longer than the context of this small model\n")
    images = ROOT / "tests/losses/images"
    pictures = images / "t10k-images-idx3-ubyte.gz"
    check(folder, "mlp", ["--label-column", "kind", "--hidden", "16,8", "--steps", "40"], folder / "train.csv",
          folder / "others.csv", 2)
    (folder / "train.csv").write_text(table(["b", "price", "c", "a"], 150))
    check_regression(folder)
    check(folder, "convnet", ["--model", "convnet", "--batch-norm", "--dropout", "0.2", "--steps", "4"], images, pictures,
          10)
    check(folder, "gpt", ["--model", "gpt", "--layers", "2", "--heads", "2", "--embed", "16", "--context", "24",
                          "--steps", "20"], ROOT / "LICENSE", folder / "lines", 256)
