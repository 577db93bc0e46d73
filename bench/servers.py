#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Several parameter servers against one where the wire is the limit: steps a second of asynchronous training.

usage: servers.py --build DIR [--servers N] [--workers N] [--rate RATE] [--model MODEL] [--steps N] [--rounds N]

Each worker and each server is a virtual host of this machine (tools/virtual_cluster.sh; as root) with a link of
its own; every variable is cut by rows into as many parts as there are servers, two unless --servers says otherwise.
One server's link carries the bytes of all workers, each of N servers' an Nth of them: nine tenths of N times the steps
are wanted. A worker pulls, computes and pushes, one after the other, so few workers leave the links of the servers
idle; and all begin with a pull, so in a short run all push at once, too, while the other direction of the links has
nothing to do. Five minutes. Prints one JSON object at the end.
"""
import argparse
import json
import pathlib
import statistics
import sys

from peers.processes import Failed, launch, objects, outputs

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 900  # the most that one run may take
WANTED = 0.9  # of what the links would give


def steps_per_second(options, servers):
    command = [str(ROOT / "tools/virtual_cluster.sh"), "--hosts", str(options.workers + servers), "--rate", options.rate, "--",
               str(pathlib.Path(options.build).resolve() / "tools/lockstep"), "train", "--strategy", "parameter_server",
               "--servers", str(servers), "--partition", f"fixed:{options.servers}", "--insecure", "--model", options.model, "--examples",
               "12800", "--eval", "0", "--batch", "128", "--steps", str(options.steps), "--warm-up", "0", "--threads", "1",
               "--schedule", "constant", "--rate", "0.001", "--json"]
    found = objects(outputs([launch(command)], SECONDS)[0])
    if not found:
        raise Failed("it printed no result")
    return found[-1]["steps"] / found[-1]["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--rate", default="300mbit")
    parser.add_argument("--model", default="mlp_wide")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    one, several = [], []
    for _ in range(options.rounds):
        one.append(steps_per_second(options, 1))
        several.append(steps_per_second(options, options.servers))
    ratio = statistics.median(several) / statistics.median(one)
    print(f"{options.model}, {options.workers} workers, links of {options.rate}: one server {statistics.median(one):.2f} "
          f"steps/s, {options.servers} {statistics.median(several):.2f}: {ratio:.2f} times, wanted {WANTED * options.servers:.1f}")
    print(json.dumps({"one": one, "servers": options.servers, "several": several, "ratio": ratio}))


if __name__ == "__main__":
    try:
        main()
    except Failed as failed:
        sys.exit(f"servers: {failed}")
