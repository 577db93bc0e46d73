#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Equal work, over real processes and hosts: after one step of SGD the change of the parameters agrees
with that of one replica to 1e-5 (relative, L2), whatever the strategy and the number of replicas; runs
repeat bit by bit, and whatever carries the messages.

usage: equal_work_test.py LOCKSTEP VIRTUAL_CLUSTER [--model NAME]
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import shards

TOLERANCE = 1e-5


def train(prefix, lockstep, folder, *flags):
    command = prefix + [lockstep, "train", "--checkpoints", str(folder), "--json", "--verbose", "--threads", "1",
                        *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nfailed with {done.returncode}:\n{done.stderr}")
    result = json.loads(done.stdout.strip().splitlines()[-1])
    costs = [line for line in done.stderr.splitlines() if line.startswith("costs of ranks and links: ")]
    result["costs"] = costs[0].split(": ")[1] if costs else "not needed"
    return result


def bits(folder):
    return [hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(shards.newest(folder).glob("*.safetensors"))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("cluster")
    parser.add_argument("--model", default="mnist_cnn")
    arguments = parser.parse_args()
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        mpirun.insert(1, "--allow-run-as-root")
    data = ["--model", arguments.model, "--examples", "500", "--batch", "62", "--optimizer", "sgd"]
    collective = ["--strategy", "collective_all_reduce"]
    ways = {
        "mirrored, 3 replicas": ([], ["--replicas", "3", "--assumed"]),
        "4 processes, timed": (mpirun + ["-n", "4"], collective),
        "2 processes of 2": (mpirun + ["-n", "2"], collective + ["--replicas", "2", "--assumed"]),
    }
    if os.geteuid() == 0 and shutil.which("ip") and shutil.which("tc"):
        cluster = ["bash", arguments.cluster, "--hosts", "2", "--ranks-per-host", "2", "--rate", "1gbit",
                   "--"]
        ring = ["--algorithm", "ring", "--update", "fused"]
        ways["2 hosts of 2, planned"] = (cluster, collective + ["--assumed"])
        ways["2 hosts of 2, measured"] = (cluster, collective)
        ways["2 hosts of 2, by size"] = (cluster, collective + ["--algorithm", "leader_hierarchical:..4m,hierarchical:4m..", "--update", "fused"])
        ways["2 hosts of 2, ring"] = (cluster, collective + ring + [
            "--interface", "eth0", "--ports", "21000-21100"])
        ways["2 hosts of 2, ring by MPI"] = (cluster, collective + ring + ["--transport", "mpi"])
    else:
        print("the part over 2 hosts is left out: it needs root, ip and tc")
    bad, ended = 0, {}
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        os.environ["XDG_CACHE_HOME"] = str(top / "cache")   # of measured costs
        one_step = data + ["--steps", "1"]
        train([], arguments.lockstep, top / "before", *one_step, "--rate", "1e-30")
        train([], arguments.lockstep, top / "one", *one_step)
        before, one = shards.weights(top / "before"), shards.weights(top / "one")
        for name, (prefix, flags) in ways.items():
            folder = top / name.replace(" ", "_").replace(",", "")
            result = train(prefix, arguments.lockstep, folder, *one_step, *flags)
            change = shards.relative_change(shards.weights(folder), one, before)
            print(f"{name}: {result['algorithm']}, the change differs by {change:.2e}")
            if not change <= TOLERANCE:
                bad += 1
                print("  FAILED: more than", TOLERANCE)
            # Each number leaves its host once: of what there is, that is hierarchical for so many bytes.
            expected = "hierarchical" if "planned" in name else "ring" if "ring" in name else "direct"
            if "by size" in name:
                expected = "leader_hierarchical:..4194304,hierarchical:4194304.."
            free = "measured" in name or "timed" in name
            if not free and result["algorithm"] != expected:
                bad += 1
                print("  FAILED: another algorithm was expected")
            asked = "ring" in name or "by size" in name
            expected = ("measured in" if "measured" in name else "all-reduces timed" if "timed" in name
                        else "not needed" if asked else "assumed")
            if not result["costs"].startswith(expected):
                bad += 1
                print(f"  FAILED: costs are {result['costs']}; {expected} was expected")
            more = data + ["--steps", "5", *flags]
            again = [top / f"again{i}" for i in (0, 1)]
            for each in again:
                shutil.rmtree(each, ignore_errors=True)
                train(prefix, arguments.lockstep, each, *more)
            ended[name] = bits(again[0])
            if ended[name] != bits(again[1]):
                bad += 1
                print("  FAILED: two runs with one seed end with different bits")
    if ended.get("2 hosts of 2, ring") != ended.get("2 hosts of 2, ring by MPI"):
        bad += 1
        print("FAILED: messages by MPI end with other bits than messages by sockets")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
