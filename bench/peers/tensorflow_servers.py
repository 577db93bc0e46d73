#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TensorFlow's ParameterServerStrategy: workers that a coordinator gives steps to, servers with the variables.

usage: tensorflow_servers.py [--model MODEL] [--steps N] [--workers N] [--servers N] [--update ...] [--call ...] [--threads ...]

Starts the tasks of the job, which are this script again, each by TF_CONFIG, and is the coordinator itself. Prints
one JSON object with the steps a second of all workers together.
"""
import ctypes
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time

import peer

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["GRPC_VERBOSITY"] = "NONE"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
ROUNDS = 5   # of so many steps; their median counts
RATE = 0.002  # several workers at once go too far with the rate that one worker has


def cluster(workers, servers):
    """Addresses for all, free now."""
    held = [socket.socket() for _ in range(workers + servers + 1)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return {"chief": addresses[:1], "worker": addresses[1:1 + workers], "ps": addresses[1 + workers:]}


flags = peer.flags({
    "update": ["momentum", "keras"],
    "call": ["1", "10"],      # steps in one call of the coordinator
    "threads": ["1", "auto"],  # of each task's operations
    "workers": ["2", "1", "3", "4"],
    "servers": ["1", "2"],
})
tasks = []
if "TF_CONFIG" not in os.environ:
    everybody = cluster(int(flags.workers), int(flags.servers))

    def config(job, index):
        return json.dumps({"cluster": everybody, "task": {"type": job, "index": index}})

    for job in ("ps", "worker"):
        for index in range(len(everybody[job])):
            tasks.append(subprocess.Popen([sys.executable, pathlib.Path(__file__).resolve(), *sys.argv[1:]],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                          env={**os.environ, "TF_CONFIG": config(job, index)}))
    os.environ["TF_CONFIG"] = config("chief", 0)

import numpy
import tensorflow as tf

if flags.threads != "auto":
    tf.config.threading.set_intra_op_parallelism_threads(int(flags.threads))
tf.random.set_seed(1)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type != "chief":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with who started it
    options = tf.compat.v1.ConfigProto()
    if flags.threads != "auto":
        options.intra_op_parallelism_threads = int(flags.threads)
    # As TensorFlow's own programs do: with fewer a worker that waits for a server would never answer.
    options.inter_op_parallelism_threads = max(4, int(flags.workers) + 1)
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
                                  protocol="grpc", config=options, start=True)
    server.join()

convolutional = flags.model == "mnist_cnn"
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)


def weights():
    width = peer.HIDDEN.get(flags.model)
    shapes = ([(3, 3, 1, 32), (3, 3, 32, 64), (64 * 12 * 12, 128), (128, 10)] if convolutional
              else [(784, width), (width, width), (width, 10)])
    initial = tf.keras.initializers.GlorotUniform(1)
    return [(tf.Variable(initial(shape)), tf.Variable(tf.zeros(shape[-1:]))) for shape in shapes]


def forward(layers, x):
    if convolutional:
        for w, b in layers[:2]:
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "VALID"), b))
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), (-1, 64 * 12 * 12))
        layers = layers[2:]
    for w, b in layers[:-1]:
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, w), b))
    w, b = layers[-1]
    return tf.nn.bias_add(tf.matmul(x, w), b)


with strategy.scope():
    layers = weights()
    optimizer = (tf.keras.optimizers.SGD(RATE, momentum=peer.MOMENTUM) if flags.update == "keras"
                 else tf.compat.v1.train.MomentumOptimizer(RATE, peer.MOMENTUM))
    variables = [v for pair in layers for v in pair]
    if flags.update == "keras":
        optimizer.build(variables)


def examples():
    images, labels = peer.batch(numpy, (28, 28, 1) if convolutional else (784,))
    return tf.data.Dataset.from_tensors((images, labels)).cache().repeat()


per_worker = iter(coordinator.create_per_worker_dataset(examples))


def replica_step(x, y):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, forward(layers, x))
        loss = tf.reduce_mean(losses)
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


@tf.function
def steps(iterator):
    loss = tf.constant(0.0)
    for _ in tf.range(int(flags.call)):
        x, y = next(iterator)
        loss = strategy.run(replica_step, args=(x, y))
    return loss


def run(count):
    """So many steps; the loss of the last."""
    for _ in range(count // int(flags.call)):
        last = coordinator.schedule(steps, args=(per_worker,))
    coordinator.join()
    return float(last.fetch())


first = run(max(2 * int(flags.call), peer.WARM_UP))
seconds = []
for _ in range(ROUNDS):
    before = time.perf_counter()
    last = run(flags.steps)
    seconds.append(time.perf_counter() - before)
for task in tasks:
    task.kill()
if not last < first:
    sys.exit(f"the loss did not fall: {first} to {last}")
rate = flags.steps / statistics.median(seconds)
print(json.dumps({
    "peer": f"TensorFlow {tf.__version__}", "model": flags.model, "workers": int(flags.workers),
    "servers": int(flags.servers), "batch": peer.BATCH, "steps_per_second": rate,
    "setting": f"ParameterServerStrategy, {flags.update}, {flags.call} steps a call, intra-op threads {flags.threads}",
    "losses": [first, last]}), flush=True)
os._exit(0)  # its threads would wait for tasks that are gone
