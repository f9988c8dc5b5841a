"""What the programs of this folder share: the sizes of a run, its samples, and how it is measured and reported.

A program is started once for each rank, as `PROGRAM MODE MODEL...`. It finds its rank in the environment, trains each
model in turn, and its rank 0 prints one JSON object a model:

    {"framework","version","mode","model","parameters","median_ms","first_loss","last_loss"}
"""
import json
import os
import statistics
import sys
import time

# Those of `lockstep-bench step`.
BATCH = {"mlp": 256, "convnet": 128, "gpt": 16}  # samples of a step, over all ranks
SIDE, CLASSES, HIDDEN = 28, 10, 512
FILTERS, CONVNET_HIDDEN = (32, 64), 128
LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 4, 4, 128, 128, 256
LEARNING_RATE, MOMENTUM = 1e-3, 0.9
EMBEDDING_STDDEV, NORM_EPSILON = 0.02, 1e-5

BATCHES = 16  # in memory
# Blocks that do not count, and those that do. Compilation ends in the former.
BLOCKS = {"mlp": (3, 15), "convnet": (1, 3), "gpt": (1, 3)}
STEPS_OF_BLOCK = 5


def rank_and_size():
    """Of this process, as mpirun or the caller says."""
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        return int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def batches(model, rank, size):
    """This rank's part of each batch: (inputs, labels) as numpy arrays. Images are [samples, 28, 28, 1], and their
    brightness tells their label, so that losses fall."""
    import numpy

    random = numpy.random.default_rng([1, rank])
    samples = BATCH[model] // size
    for _ in range(BATCHES):
        if model == "gpt":
            text = random.integers(VOCABULARY, size=(samples, CONTEXT + 1))
            yield numpy.ascontiguousarray(text[:, :-1]), numpy.ascontiguousarray(text[:, 1:])
        else:
            labels = random.integers(CLASSES, size=samples)
            images = random.random((samples, SIDE, SIDE, 1), dtype=numpy.float32)
            yield images * ((1 + labels) / CLASSES).astype(numpy.float32)[:, None, None, None], labels


def measure(model, step, value=float):
    """Times `step(batch number)`, which trains on one batch and returns its loss; `value(loss)` waits for a loss. The
    first and the last step train on the same batch, so that its loss must have fallen."""
    warm_up, counted = BLOCKS[model]
    first = value(step(0))
    times, number = [], 0
    for _ in range(warm_up + counted):
        begin = time.perf_counter()
        for _ in range(STEPS_OF_BLOCK):
            loss = step(number % BATCHES)
            number += 1
        value(loss)
        times.append((time.perf_counter() - begin) / STEPS_OF_BLOCK)
    return {"median_ms": 1e3 * statistics.median(times[warm_up:]), "first_loss": first, "last_loss": value(step(0))}


def report(rank, framework, version, mode, model, parameters, measured):
    if rank == 0:
        print(json.dumps({"framework": framework, "version": version, "mode": mode, "model": model,
                          "parameters": parameters, **measured}, separators=(",", ":")), flush=True)


def arguments(modes):
    """(mode, models) of the command line."""
    if len(sys.argv) < 3 or sys.argv[1] not in modes or not set(sys.argv[2:]) <= set(BATCH):
        sys.exit(f"usage: {sys.argv[0]} {'|'.join(modes)} {'|'.join(BATCH)}...")
    return sys.argv[1], sys.argv[2:]
