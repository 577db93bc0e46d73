#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TensorFlow's training step on one core, or one worker of MultiWorkerMirroredStrategy.

usage: tensorflow_peer.py [--model MODEL] [--dtype ...] [--steps N] [--mode ...] [--update ...] [--packs ...]

The defaults are the fastest public setting that was found; the other values are what was tried. With --dtype bfloat16
weights are float32 and are cast in the step; with Keras this is its policy mixed_bfloat16.
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

import tensorflow_network

flags = peer.flags({
    "mode": ["traced", "xla"],
    "update": ["momentum", "keras"],
    "packs": ["0", "4", "25"],  # MiB of gradients in one all-reduce; 0: all
})
mixed = flags.dtype == "bfloat16"
loaded = peer.peak_mib()
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


def build():
    if flags.update == "keras":
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16" if mixed else "float32")
        return (tensorflow_network.keras_network(flags.model),
                tf.keras.optimizers.SGD(peer.RATE, momentum=peer.MOMENTUM))
    # Its update is one kernel a variable.
    return (tensorflow_network.PlainNetwork(flags.model, tf.bfloat16 if mixed else tf.float32),
            tf.compat.v1.train.MomentumOptimizer(peer.RATE, peer.MOMENTUM))


with strategy.scope() if strategy else contextlib.nullcontext():
    model, optimizer = build()
setting += ["Keras layers and SGD" if flags.update == "keras"
            else "tf.nn functions and MomentumOptimizer",
            f"NHWC, {flags.dtype}",
            "intra- and inter-op threads 1"]
images, labels = peer.batch(numpy, flags.model)
images, labels = tf.constant(images), tf.constant(labels)
share = 1.0 / (len(labels) * peer.processes())


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


result = peer.measure(step, float)(flags.steps, flags.warm_up)
peer.report(f"TensorFlow {tf.__version__}", ", ".join(setting), flags, result, loaded)
