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

import networks
import tensorflow_network

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

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)


with strategy.scope():
    model = tensorflow_network.PlainNetwork(flags.model)
    optimizer = (tf.keras.optimizers.SGD(RATE, momentum=peer.MOMENTUM) if flags.update == "keras"
                 else tf.compat.v1.train.MomentumOptimizer(RATE, peer.MOMENTUM))
    variables = model.trainable_variables
    if flags.update == "keras":
        optimizer.build(variables)


def examples():
    images, labels = peer.batch(numpy, flags.model)
    return tf.data.Dataset.from_tensors((images, labels)).cache().repeat()


per_worker = iter(coordinator.create_per_worker_dataset(examples))


def replica_step(x, y):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, model(x))
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


first = run(max(2 * int(flags.call), flags.warm_up))
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
    "servers": int(flags.servers), "batch": networks.INPUTS[flags.model][2], "steps_per_second": rate,
    "setting": f"ParameterServerStrategy, {flags.update}, {flags.call} steps a call, intra-op threads {flags.threads}",
    "losses": [first, last]}), flush=True)
os._exit(0)  # its threads would wait for tasks that are gone
