#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Seconds from the start of `lockstep train --model mnist_cnn` until it has ended after its first step: with one
process, and under mpirun with two. An upper bound of the time to the end of that step, since ending is in it.
The system's caches are emptied before each run where this may be done (as root); else they are warm, which is said.

usage: startup.py LOCKSTEP [--rounds N]
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time


def emptied():
    """The system's file caches are empty now; False where it may not be done."""
    try:
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
        return True
    except OSError:
        return False


def seconds(command):
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    took = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"startup: exit code {done.returncode}: {done.stderr.strip()}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    if result["steps"] != 1:
        sys.exit(f"startup: {result['steps']} steps instead of one")
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    train = [options.lockstep, "train", "--model", "mnist_cnn", "--data", "random", "--batch", "128", "--steps", "1",
             "--eval", "0", "--json"]
    cases = {"one process": train}
    if shutil.which("mpirun"):
        cases["two processes"] = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe",
                                  "-n", "2", *train, "--strategy", "collective_all_reduce"]
    found = {name: [] for name in cases}
    cold = True
    for _ in range(options.rounds):
        for name, command in cases.items():
            cold = emptied() and cold
            found[name].append(seconds(command))
    print(f"caches {'emptied before each run' if cold else 'warm: only root may empty them'}")
    for name, times in found.items():
        print(f"{name}: {statistics.median(times):.2f} s (from {min(times):.2f} to {max(times):.2f})")
    print(json.dumps({"cold": cold, **{name: statistics.median(times) for name, times in found.items()}}))


if __name__ == "__main__":
    main()
