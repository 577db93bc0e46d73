#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TensorFlow's training step on one core, or one worker of MultiWorkerMirroredStrategy.

usage: tensorflow_peer.py [--model MODEL] [--steps N] [--mode ...] [--update ...] [--packs ...]

The defaults are the fastest public setting that was found; the other values are what was tried.
"""
import contextlib
import json
import os

import peer

peer.one_thread()
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["GRPC_VERBOSITY"] = "NONE"
if peer.processes() > 1:
    # Each process of a job has a port of its own, from the given one on.
    first = int(os.environ["MASTER_PORT"])
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": [f"127.0.0.1:{first + i}" for i in range(peer.processes())]},
        "task": {"type": "worker", "index": peer.rank()}})
import numpy
import tensorflow as tf

flags = peer.flags({
    "mode": ["traced", "xla"],
    "update": ["momentum", "keras"],
    "packs": ["0", "4", "25"],  # MiB of gradients in one all-reduce; 0: all
})
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
tf.random.set_seed(1)
strategy = None
setting = ["train step in one tf.function" + (" with jit_compile" if flags.mode == "xla" else "")]
if peer.processes() > 1:
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING,
        bytes_per_pack=int(flags.packs) << 20)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    setting.append("MultiWorkerMirroredStrategy, RING, " +
                   (f"packs of {flags.packs} MiB" if int(flags.packs) else "one pack"))
convolutional = flags.model == "mnist_cnn"


def keras_model():
    layers = tf.keras.layers
    if convolutional:
        return tf.keras.Sequential([
            tf.keras.Input((28, 28, 1)), layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"), layers.MaxPooling2D(2), layers.Flatten(),
            layers.Dense(128, activation="relu"), layers.Dense(10)])
    width = peer.HIDDEN[flags.model]
    return tf.keras.Sequential([
        tf.keras.Input((784,)), layers.Dense(width, activation="relu"),
        layers.Dense(width, activation="relu"), layers.Dense(10)])


class PlainModel:
    """The same network in tf.nn's functions over tf.Variables, which MomentumOptimizer wants."""

    def __init__(self):
        width = peer.HIDDEN.get(flags.model)
        shapes = ([(3, 3, 1, 32), (3, 3, 32, 64), (64 * 12 * 12, 128), (128, 10)] if convolutional
                  else [(784, width), (width, width), (width, 10)])
        initial = tf.keras.initializers.GlorotUniform(1)
        self.weights = [tf.Variable(initial(shape)) for shape in shapes]
        self.biases = [tf.Variable(tf.zeros(shape[-1:])) for shape in shapes]
        self.trainable_variables = [v for pair in zip(self.weights, self.biases) for v in pair]

    def __call__(self, x, training):
        layers = list(zip(self.weights, self.biases))
        if convolutional:
            for w, b in layers[:2]:
                x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "VALID"), b))
            x = tf.nn.max_pool2d(x, 2, 2, "VALID")
            x = tf.reshape(x, (-1, 64 * 12 * 12))
            layers = layers[2:]
        for w, b in layers[:-1]:
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b))
        w, b = layers[-1]
        return tf.nn.bias_add(tf.matmul(x, w), b)


def build():
    if flags.update == "keras":
        return keras_model(), tf.keras.optimizers.SGD(peer.RATE, momentum=peer.MOMENTUM)
    # Its update is one kernel a variable.
    return PlainModel(), tf.compat.v1.train.MomentumOptimizer(peer.RATE, peer.MOMENTUM)


with strategy.scope() if strategy else contextlib.nullcontext():
    model, optimizer = build()
setting += ["Keras layers and SGD" if flags.update == "keras"
            else "tf.nn functions and MomentumOptimizer",
            "NHWC, float32, intra- and inter-op threads 1"]
images, labels = peer.batch(numpy, (28, 28, 1) if convolutional else (784,))
images, labels = tf.constant(images), tf.constant(labels)
share = 1.0 / (peer.BATCH * peer.processes())


def replica_step(x, y):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x, training=True))
        loss = tf.reduce_sum(losses) * share
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss * peer.processes()


@tf.function(jit_compile=flags.mode == "xla")
def step():
    return strategy.run(replica_step, args=(images, labels)) if strategy else replica_step(images, labels)


result = peer.measure(step, float)(flags.steps)
peer.report(f"TensorFlow {tf.__version__}", ", ".join(setting), flags.model, result)
