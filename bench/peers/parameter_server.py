#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lockstep's parameter servers beside TensorFlow's, in turn: steps a second of two workers and one server.

usage: parameter_server.py --build DIR [--python FILE] [--models M,M,...] [--rounds N] [--quick]

All tasks are processes of this machine and reach each other over loopback; asynchronous, float32, SGD with momentum,
batches of 128 from memory: TensorFlow's one again and again, lockstep's of a data set. --python names an interpreter that has TensorFlow; without it lockstep runs alone.
Before the rounds TensorFlow tries some settings for a moment and keeps the fastest. Prints a line a model, and
one JSON object at the end.
"""
import argparse
import json
import os
import pathlib
import random
import socket
import statistics
import struct
import sys
import tempfile

import contest
from processes import Failed, launch

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STEPS = {"mnist_cnn": 300, "mlp": 3000, "mlp_wide": 100}  # of lockstep; TensorFlow makes a tenth five times
WANTED = {"mnist_cnn": 2.0, "mlp": 2.0, "mlp_wide": 1.2}
WORKERS, SERVERS = 2, 1
EXAMPLES = 25600  # of lockstep's epoch, at whose end its workers meet
TRIED = [["--update", update, "--call", call, "--threads", threads]
         for update in ("momentum", "keras") for call in ("1", "10") for threads in ("1", "auto")]


def free_ports(count):
    """The first of so many ports side by side that are free now."""
    while True:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            first = one.getsockname()[1]
        try:
            for port in range(first, first + count):
                with socket.socket() as other:
                    other.bind(("127.0.0.1", port))
            return first
        except (OSError, OverflowError):
            continue


def write_digits(folder):
    """Training data in IDX files: pixels and labels without a pattern."""
    drawn = random.Random(1)
    (folder / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, EXAMPLES, 28, 28) + drawn.randbytes(EXAMPLES * 28 * 28))
    (folder / "train-labels-idx1-ubyte").write_bytes(
        struct.pack(">II", 0x801, EXAMPLES) + bytes(drawn.randrange(10) for _ in range(EXAMPLES)))


def lockstep(build, model, steps, data):
    rows = contest.networks.INPUTS[model][2]
    command = [str(ROOT / "tools/task_cluster.sh"), "--program", f"{build}/tools/lockstep", "--workers", str(WORKERS),
               "--servers", str(SERVERS), "--port", str(free_ports(WORKERS + SERVERS)), "--", "--model", model, "--data",
               data, "--eval", "0", "--batch", str(rows), "--steps", str(steps), "--warm-up", "0", "--threads", "1",
               "--schedule", "constant", "--rate", "0.01", "--json"]
    result = contest.finish([launch(command)])[0]
    return result["examples_per_second"] / rows


def tensorflow(python, model, steps, flags):
    command = [python, str(HERE / "tensorflow_servers.py"), "--model", model, "--steps", str(max(20, steps // 100 * 10)), *flags]
    return contest.finish([launch(command)])[0]["steps_per_second"]


def fastest(python, model, quick):
    best, rate, why = None, 0.0, None
    for flags in TRIED[:1] if quick else TRIED:
        try:
            found = tensorflow(python, model, STEPS[model] // 5, flags)
        except Failed as failed:
            why = failed
            continue
        print(f"  {' '.join(flags)}: {found:.1f} steps/s", file=sys.stderr)
        if found > rate:
            best, rate = flags, found
    if best is None:
        raise why
    return best


def main(data):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--python")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="TensorFlow's settings untried")
    options = parser.parse_args()
    cases = []
    for model in options.models:
        steps = STEPS[model]
        setting = fastest(options.python, model, options.quick) if options.python else None
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(lockstep(options.build, model, steps, data))
            if options.python:
                theirs.append(tensorflow(options.python, model, steps, setting))
        case = {"name": model, "steps_per_second": statistics.median(ours), "rounds": ours}
        line = f"{model}: {case['steps_per_second']:.1f} steps/s"
        if theirs:
            each = [a / b for a, b in zip(ours, theirs)]
            case |= {"peer_steps_per_second": statistics.median(theirs), "peer_rounds": theirs, "setting": setting,
                     "ratio": statistics.median(ours) / statistics.median(theirs), "wanted": WANTED[model]}
            line += (f", TensorFlow {case['peer_steps_per_second']:.1f} ({' '.join(setting)}): {case['ratio']:.2f} times "
                     f"(from {min(each):.2f} to {max(each):.2f}), wanted {WANTED[model]}")
        cases.append(case)
        print(line, flush=True)
    print(json.dumps({"cores": len(os.sched_getaffinity(0)), "cases": cases}))


if __name__ == "__main__":
    try:
        with tempfile.TemporaryDirectory() as folder:
            write_digits(pathlib.Path(folder))
            main(folder)
    except Failed as failed:
        sys.exit(f"parameter_server: {failed}")
