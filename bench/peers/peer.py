# SPDX-License-Identifier: MIT
"""What the scripts of the peers have in common: flags, one batch in memory, the clock, the result.

A script is one process; several are told who they are by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
The process of rank 0 prints one JSON object: median milliseconds of a step, images a second of all
processes together, the peer's version, and the setting that it ran in. The loss must fall.
"""
import argparse
import json
import os
import statistics
import sys
import time

BATCH = 128
RATE, MOMENTUM = 0.01, 0.9
WARM_UP = 10
HIDDEN = {"mlp": 512, "mlp_wide": 4096}  # the other model is mnist_cnn


def rank():
    return int(os.environ.get("RANK", "0"))


def processes():
    return int(os.environ.get("WORLD_SIZE", "1"))


def one_thread():
    """Before the peer is imported: its libraries read these when they load."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def flags(choices):
    """`choices`: name of a flag -> its values, the first of them the default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["mnist_cnn", *HIDDEN], default="mnist_cnn")
    parser.add_argument("--steps", type=int, default=40, help="timed ones")
    for name, values in choices.items():
        parser.add_argument("--" + name, choices=values, default=values[0])
    return parser.parse_args()


def batch(numpy, image):
    """Images of shape `image` in [0, 1) and labels, float32 and int64; of each rank its own."""
    random = numpy.random.default_rng(rank())
    return (random.random((BATCH, *image), dtype="float32"), random.integers(0, 10, BATCH))


def measure(step, value):
    """Times `step()`, which returns a loss that `value` turns into a number."""
    return lambda steps: _measure(step, value, steps)


def _measure(step, value, steps):
    first = value(step())
    for _ in range(WARM_UP):
        loss = step()
    value(loss)
    seconds = []
    begin, begin_cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        before = time.perf_counter()
        loss = step()
        seconds.append(time.perf_counter() - before)
    last = value(loss)
    whole, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    if not last < first:
        sys.exit(f"the loss did not fall: {first} to {last}")
    # A peer that only queues its steps would show here.
    if whole > 2 * sum(seconds):
        sys.exit(f"the steps took {sum(seconds):.3f} s, and their results came after {whole:.3f} s")
    return statistics.median(seconds), cpu / steps, first, last


def report(peer, setting, model, result):
    seconds, cpu, first, last = result
    if rank() != 0:
        return
    print(json.dumps({
        "peer": peer, "setting": setting, "model": model, "processes": processes(), "batch": BATCH,
        "milliseconds": seconds * 1e3, "images_per_second": BATCH * processes() / seconds,
        "cpu_milliseconds": cpu * 1e3, "losses": [first, last]}), flush=True)
