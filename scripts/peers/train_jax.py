"""Trains lockstep's models with JAX, whose processes talk over gloo (see measure.py). Modes:

default  jit of the step on a batch that is sharded over the processes: the compiler adds the sums
tuned    shard_map, with one psum of all gradients, and weights that are updated in place
"""
import math
import os

import jax
import jax.numpy as jnp
import numpy
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec

from measure import (BATCH, CLASSES, CONTEXT, CONVNET_HIDDEN, EMBEDDING_STDDEV, FILTERS, HEADS, HIDDEN, LAYERS,
                     LEARNING_RATE, MOMENTUM, NORM_EPSILON, SIDE, VOCABULARY, WIDTH, arguments, batches, measure,
                     rank_and_size, report)

MODES = ("default", "tuned")


class Initial:
    """Initial values of layers."""

    def __init__(self):
        self.key = jax.random.key(1)

    def weight(self, shape, initializer):
        self.key, key = jax.random.split(self.key)
        return initializer(key, shape)

    def dense(self, inputs, outputs, initializer=jax.nn.initializers.glorot_uniform()):
        return {"weight": self.weight((inputs, outputs), initializer), "bias": jnp.zeros(outputs)}

    def convolution(self, inputs, outputs):
        weight = self.weight((3, 3, inputs, outputs), jax.nn.initializers.glorot_uniform())
        return {"weight": weight, "bias": jnp.zeros(outputs)}

    def norm(self):
        return {"gain": jnp.ones(WIDTH), "bias": jnp.zeros(WIDTH)}


def initial_mlp(initial):
    sizes = [SIDE * SIDE, HIDDEN, HIDDEN, CLASSES]
    return [initial.dense(*pair) for pair in zip(sizes, sizes[1:])]


def initial_convnet(initial):
    first, second = FILTERS
    pooled = (SIDE - 4) // 2
    return [initial.convolution(1, first), initial.convolution(first, second),
            initial.dense(pooled * pooled * second, CONVNET_HIDDEN), initial.dense(CONVNET_HIDDEN, CLASSES)]


def initial_gpt(initial):
    normal = jax.nn.initializers.normal(EMBEDDING_STDDEV)
    residual = jax.nn.initializers.normal(EMBEDDING_STDDEV / math.sqrt(2 * LAYERS))
    blocks = [{"attention_norm": initial.norm(), "qkv": initial.dense(WIDTH, 3 * WIDTH, normal),
               "output": initial.dense(WIDTH, WIDTH, residual), "mlp_norm": initial.norm(),
               "expand": initial.dense(WIDTH, 4 * WIDTH, normal),
               "contract": initial.dense(4 * WIDTH, WIDTH, residual)} for _ in range(LAYERS)]
    return {"tokens": initial.weight((VOCABULARY, WIDTH), normal),
            "positions": initial.weight((CONTEXT, WIDTH), normal), "blocks": blocks, "norm": initial.norm()}


def dense(layer, x):
    return x @ layer["weight"] + layer["bias"]


def norm(layer, x):
    return jax.nn.standardize(x, epsilon=NORM_EPSILON) * layer["gain"] + layer["bias"]


def apply_mlp(layers, images):
    x = images.reshape(len(images), -1)
    for layer in layers[:-1]:
        x = jax.nn.relu(dense(layer, x))
    return dense(layers[-1], x)


def apply_convnet(layers, x):
    for layer in layers[:2]:
        x = jax.lax.conv_general_dilated(x, layer["weight"], (1, 1), "VALID",
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + layer["bias"])
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return dense(layers[3], jax.nn.relu(dense(layers[2], x.reshape(len(x), -1))))


def apply_gpt(weights, tokens):
    x = weights["tokens"][tokens] + weights["positions"]
    for block in weights["blocks"]:
        q, k, v = (part.reshape(*part.shape[:2], HEADS, WIDTH // HEADS)
                   for part in jnp.split(dense(block["qkv"], norm(block["attention_norm"], x)), 3, axis=-1))
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + dense(block["output"], mixed.reshape(x.shape))
        expanded = jax.nn.gelu(dense(block["expand"], norm(block["mlp_norm"], x)), approximate=True)
        x = x + dense(block["contract"], expanded)
    return norm(weights["norm"], x) @ weights["tokens"].T


NETWORKS = {"mlp": (initial_mlp, apply_mlp), "convnet": (initial_convnet, apply_convnet),
            "gpt": (initial_gpt, apply_gpt)}


def make_step(name, optimizer, mode, mesh):
    apply = NETWORKS[name][1]

    def loss_of(weights, inputs, labels):
        return optax.softmax_cross_entropy_with_integer_labels(apply(weights, inputs), labels).mean()

    def train(weights, state, inputs, labels):
        loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, labels)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    def train_mapped(weights, state, inputs, labels):
        loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, labels)
        flat, as_tree = ravel_pytree((gradients, loss))
        gradients, loss = as_tree(jax.lax.pmean(flat, "ranks"))
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    if mode == "default":
        return jax.jit(train)
    whole, part = PartitionSpec(), PartitionSpec("ranks")
    # Without the check, whose types would sum each gradient by itself.
    mapped = jax.shard_map(train_mapped, mesh=mesh, in_specs=(whole, whole, part, part),
                           out_specs=(whole, whole, whole), check_vma=False)
    return jax.jit(mapped, donate_argnums=(0, 1))


def main():
    mode, models = arguments(MODES)
    rank, size = rank_and_size()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", size, rank)
    mesh = jax.make_mesh((size,), ("ranks",), axis_types=(jax.sharding.AxisType.Auto,))
    replicated, sharded = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("ranks"))
    for name in models:
        def everywhere(tree):
            return jax.tree.map(
                lambda leaf: jax.make_array_from_process_local_data(replicated, numpy.asarray(leaf)), tree)

        optimizer = (optax.adamw(LEARNING_RATE, weight_decay=0) if name == "gpt"
                     else optax.sgd(LEARNING_RATE, momentum=MOMENTUM))
        initial = NETWORKS[name][0](Initial())
        weights, state = everywhere(initial), everywhere(optimizer.init(initial))
        data = [tuple(jax.make_array_from_process_local_data(sharded, part, (BATCH[name], *part.shape[1:]))
                      for part in (inputs, labels.astype(numpy.int32))) for inputs, labels in batches(name, rank, size)]
        train = make_step(name, optimizer, mode, mesh)

        def step(number):
            nonlocal weights, state
            weights, state, loss = train(weights, state, *data[number])
            return loss

        report(rank, "JAX", jax.__version__, mode, name, sum(leaf.size for leaf in jax.tree.leaves(initial)),
               measure(name, step))


if __name__ == "__main__":
    main()
