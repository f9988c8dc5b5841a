"""Trains lockstep's models with TensorFlow's MultiWorkerMirroredStrategy (see measure.py). Modes:

default  graphs of tf.function; gradients are packed and summed in a ring, the only way there is between hosts
xla      the same, with forward and backward pass compiled by XLA
"""
import json
import os
import sys

from measure import (BATCH, CLASSES, CONTEXT, CONVNET_HIDDEN, EMBEDDING_STDDEV, FILTERS, HEADS, HIDDEN, LAYERS,
                     LEARNING_RATE, MOMENTUM, NORM_EPSILON, SIDE, VOCABULARY, WIDTH, arguments, batches, measure,
                     rank_and_size, report)

# The strategy finds its peers there, and wants them before TensorFlow starts.
RANK, SIZE = rank_and_size()
PORT = int(os.environ["MASTER_PORT"])
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": [f"{os.environ['MASTER_ADDR']}:{PORT + rank}" for rank in range(SIZE)]},
     "task": {"type": "worker", "index": RANK}})
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

MODES = ("default", "xla")


def mlp():
    return keras.Sequential([keras.Input((SIDE, SIDE, 1)), keras.layers.Flatten(),
                             keras.layers.Dense(HIDDEN, "relu"), keras.layers.Dense(HIDDEN, "relu"),
                             keras.layers.Dense(CLASSES)])


def convnet():
    first, second = FILTERS
    return keras.Sequential([keras.Input((SIDE, SIDE, 1)), keras.layers.Conv2D(first, 3, activation="relu"),
                             keras.layers.Conv2D(second, 3, activation="relu"), keras.layers.MaxPooling2D(),
                             keras.layers.Flatten(), keras.layers.Dense(CONVNET_HIDDEN, "relu"),
                             keras.layers.Dense(CLASSES)])


class Block(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        normal = keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV)
        self.attention_norm, self.mlp_norm = (keras.layers.LayerNormalization(epsilon=NORM_EPSILON) for _ in range(2))
        self.qkv = keras.layers.Dense(3 * WIDTH, kernel_initializer=normal)
        self.project = keras.layers.Dense(WIDTH, kernel_initializer=normal)
        self.expand = keras.layers.Dense(4 * WIDTH, kernel_initializer=normal)
        self.contract = keras.layers.Dense(WIDTH, kernel_initializer=normal)

    def build(self, shape):
        for layer in (self.attention_norm, self.mlp_norm, self.qkv, self.project, self.expand):
            layer.build(shape)
        self.contract.build((*shape[:-1], 4 * WIDTH))

    def call(self, x):
        windows = tf.shape(x)[0]
        q, k, v = (tf.transpose(tf.reshape(part, (windows, CONTEXT, HEADS, WIDTH // HEADS)), (0, 2, 1, 3))
                   for part in tf.split(self.qkv(self.attention_norm(x)), 3, axis=-1))
        future = tf.linalg.band_part(tf.fill((CONTEXT, CONTEXT), -1e9), 0, -1)
        future = future - tf.linalg.band_part(future, 0, 0)
        scores = tf.matmul(q, k, transpose_b=True) * (WIDTH // HEADS)**-0.5 + future
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (0, 2, 1, 3))
        x = x + self.project(tf.reshape(mixed, (windows, CONTEXT, WIDTH)))
        return x + self.contract(tf.nn.gelu(self.expand(self.mlp_norm(x)), approximate=True))


class Gpt(keras.Model):
    def __init__(self):
        super().__init__()
        normal = keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV)
        self.tokens = self.add_weight(shape=(VOCABULARY, WIDTH), initializer=normal)
        self.positions = self.add_weight(shape=(CONTEXT, WIDTH), initializer=normal)
        self.stack = [Block() for _ in range(LAYERS)]
        self.norm = keras.layers.LayerNormalization(epsilon=NORM_EPSILON)

    def build(self, shape):
        for layer in (*self.stack, self.norm):
            layer.build((*shape, WIDTH))

    def call(self, tokens):
        x = tf.gather(self.tokens, tokens) + self.positions
        for block in self.stack:
            x = block(x)
        # The output weights are those of the embedding.
        return tf.matmul(self.norm(x), self.tokens, transpose_b=True)


def make_step(strategy, name, model, optimizer, mode):
    def gradients_of(inputs, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(inputs, training=True))
            loss = tf.reduce_mean(losses) / SIZE
        # Those of the embedding are dense anyway, because of the output.
        gradients = [tf.convert_to_tensor(each) for each in tape.gradient(loss, model.trainable_variables)]
        return loss, gradients

    compute = tf.function(gradients_of, jit_compile=True) if mode == "xla" else gradients_of

    def train(inputs, labels):
        loss, gradients = compute(inputs, labels)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss * SIZE

    return tf.function(lambda inputs, labels: strategy.run(train, (inputs, labels)))


def main():
    mode, models = arguments(MODES)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    for name in models:
        keras.utils.set_random_seed(1)
        with strategy.scope():
            model = {"mlp": mlp, "convnet": convnet, "gpt": Gpt}[name]()
            if name == "gpt":
                model.build((BATCH[name] // SIZE, CONTEXT))
                optimizer = keras.optimizers.AdamW(LEARNING_RATE, weight_decay=0)
            else:
                optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
            optimizer.build(model.trainable_variables)
        data = [(tf.constant(inputs, tf.int32 if name == "gpt" else tf.float32), tf.constant(labels, tf.int32))
                for inputs, labels in batches(name, RANK, SIZE)]
        train = make_step(strategy, name, model, optimizer, mode)
        report(RANK, "TensorFlow", tf.__version__, mode, name, model.count_params(),
               measure(name, lambda number: train(*data[number])))


if __name__ == "__main__":
    main()
    # The servers of the strategy would wait for each other.
    sys.stdout.flush()
    os._exit(0)
