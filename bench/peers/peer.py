# SPDX-License-Identifier: MIT
"""What the scripts of the peers have in common: flags, one batch in memory, the clock, the result.

A script is one process; several are told who they are by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
The process of rank 0 prints one JSON object: median milliseconds of a step, images a second of all
processes together, median processor milliseconds, the most memory that the process had and what it had before
there was a model (MiB), the peer's version, and the setting that it ran in. The loss must fall.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

import networks

RATE, MOMENTUM = 0.01, 0.9


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
    parser.add_argument("--model", choices=list(networks.NETWORKS), default="mnist_cnn")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--steps", type=int, default=40, help="timed ones")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before them")
    for name, values in choices.items():
        parser.add_argument("--" + name, choices=values, default=values[0])
    return parser.parse_args()


def batch(numpy, model):
    """Images in [0, 1), [rows, height, width, channels], and labels, float32 and int64; of each rank its own."""
    image, classes, rows = networks.INPUTS[model]
    random = numpy.random.default_rng(rank())
    return random.random((rows, *image), dtype="float32"), random.integers(0, classes, rows)


def peak_mib():
    """The most memory that this process had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(step, value):
    """Times `step()`, which returns a loss that `value` turns into a number."""
    return lambda steps, warm_up: _measure(step, value, steps, warm_up)


def _measure(step, value, steps, warm_up):
    first = value(step())
    for _ in range(warm_up):
        loss = step()
    value(loss)
    seconds, processor = [], []
    begin = time.perf_counter()
    for _ in range(steps):
        before, before_cpu = time.perf_counter(), time.process_time()
        loss = step()
        seconds.append(time.perf_counter() - before)
        processor.append(time.process_time() - before_cpu)
    last = value(loss)
    whole = time.perf_counter() - begin
    if not last < first:
        sys.exit(f"the loss did not fall: {first} to {last}")
    # A peer that only queues its steps would show here.
    if whole > 2 * sum(seconds):
        sys.exit(f"the steps took {sum(seconds):.3f} s, and their results came after {whole:.3f} s")
    return statistics.median(seconds), statistics.median(processor), first, last


def report(peer, setting, flags, result, loaded):
    seconds, cpu, first, last = result
    if rank() != 0:
        return
    rows = networks.INPUTS[flags.model][2]
    print(json.dumps({
        "peer": peer, "setting": setting, "model": flags.model, "dtype": flags.dtype, "processes": processes(),
        "batch": rows, "milliseconds": seconds * 1e3, "examples_per_second": rows * processes() / seconds,
        "cpu_milliseconds": cpu * 1e3, "peak_mib": peak_mib(), "loaded_mib": loaded,
        "losses": [first, last]}), flush=True)
