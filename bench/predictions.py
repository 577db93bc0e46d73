#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How well predicted times hold: `lockstep bench --algorithm all`, predicted over measured, for every algorithm and size.

usage: bench/predictions.py LOCKSTEP [--max SIZE] [--iterations N] [--cluster RATE]

Two processes of this machine; with --cluster RATE (100mbit, 1gbit ...) two virtual hosts of one process each, which
needs root. A ratio that is off by more than a quarter is starred. The last lines say how many are not, and what the
choice by predictions costs against the best that was measured.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
OFF = 0.25


def measured(options):
    command = [options.lockstep, "bench", "--algorithm", "all", "--json", "--check", "last", "--min", "256", "--max",
               options.max, "--iterations", str(options.iterations)]
    if options.cluster:
        command = [str(TOP / "tools/virtual_cluster.sh"), "--hosts", "2", "--rate", options.cluster, "--", *command]
    else:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        command = ["mpirun", *root, "-n", "2", *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--max", default="64MiB")
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--cluster")
    rows = measured(parser.parse_args())
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    print(f"two ranks meet in {rows[0]['barrier_ns']:.0f} ns; microseconds measured, predicted, ratio")
    print(" " * 10 + "".join(f"{name:>28}" for name in algorithms))
    good, regrets = [], []
    for size in dict.fromkeys(row["bytes"] for row in rows):
        line, here = f"{size:>10}", {row["algorithm"]: row for row in rows if row["bytes"] == size}
        for name in algorithms:
            us, predicted = here[name]["in_place_us"], here[name]["predicted_us"]
            good.append(abs(predicted / us - 1) <= OFF)
            line += f"{us:>12.1f}{predicted:>10.1f}{predicted / us:>5.2f}{' ' if good[-1] else '*'}"
        print(line)
        chosen = min(here.values(), key=lambda row: row["predicted_us"])
        best = min(here.values(), key=lambda row: row["in_place_us"])
        regrets.append(chosen["in_place_us"] / best["in_place_us"])
    print(f"within a quarter: {sum(good)} of {len(good)}, {100 * sum(good) / len(good):.0f} %")
    print(f"choice by prediction: within 10 % of the best at {sum(r <= 1.1 for r in regrets)} of {len(regrets)} sizes,"
          f" {max(regrets):.2f} times it at worst")


if __name__ == "__main__":
    main()
