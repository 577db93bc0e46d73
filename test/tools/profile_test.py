#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`lockstep train --profile`: the trace of four replicas, as threads and as two processes of two. It is JSON
of the trace event format, has every layer of every replica in every step, and shows that gradients are on
their way while backward goes on.

usage: profile_test.py LOCKSTEP [NAMES OF TESTS]
"""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = ""
HAVE_MPI = True
STEPS = 5
LAYERS = {"conv1", "tanh1", "pool1", "conv2", "tanh2", "pool2", "dense1", "tanh3", "dense2", "tanh4", "dense3"}
TRAIN = ["--model", "lenet5", "--examples", "1280", "--batch", "128", "--steps", "18", "--eval", "0", "--threads", "1",
         "--bucket", "0.05", "--profile-steps", str(STEPS)]   # five buckets
PATIENCE = 120  # seconds for anything; only a defect takes so long


def nanoseconds(microseconds):
    return round(microseconds * 1000)


class Trace(unittest.TestCase):
    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        self.file = pathlib.Path(top.name) / "trace.json"

    def train(self, *arguments, prefix=()):
        done = subprocess.run([*prefix, LOCKSTEP, "train", *TRAIN, *arguments, "--profile", self.file],
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([path.name for path in self.file.parent.iterdir()], ["trace.json"])
        return json.loads(self.file.read_text(encoding="utf-8"))

    def check(self, document):
        events = document["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        self.assertEqual({event["ph"] for event in events}, {"M", "X"})
        self.assertEqual({event["pid"] for event in events}, set(range(4)))
        for span in spans:
            self.assertGreaterEqual(span["ts"], 0)
            self.assertGreaterEqual(span["dur"], 0)
        named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
        self.assertEqual(named, {(span["pid"], span["tid"]) for span in spans}, "lanes without a name")
        self.check_layers(spans)
        self.check_nesting(spans)
        self.check_overlap(spans)

    def check_layers(self, spans):
        """Every layer of every replica in each direction and step (by slices of the batch), and the rest of a step."""
        seen = collections.Counter((s["pid"], s["args"]["step"], s["cat"], s["name"]) for s in spans)
        self.assertEqual({key[1] for key in seen}, set(range(11, 11 + STEPS)))
        for rank in range(4):
            for step in range(11, 11 + STEPS):
                for layer in LAYERS:
                    for direction in ("forward", "backward"):
                        self.assertGreaterEqual(seen[rank, step, direction, layer], 1, (rank, step, direction, layer))
                for part in (("input", "input"), ("loss", "loss"), ("step", "step"), ("strategy", "finish")):
                    self.assertEqual(seen[(rank, step) + part], 1, (rank, step, part))
                buckets = [s for s in spans if s["cat"] == "bucket" and s["pid"] == rank and s["args"]["step"] == step]
                self.assertEqual(len(buckets), 5)
                self.assertEqual(sum(s["args"]["bytes"] for s in buckets) // 4096, 61706 * 4 // 4096)
                self.assertTrue(any("conv1.weight" in s["name"] for s in buckets))

    def check_nesting(self, spans):
        lanes = collections.defaultdict(list)
        for span in spans:
            begin = nanoseconds(span["ts"])
            lanes[span["pid"], span["tid"]].append((begin, begin + nanoseconds(span["dur"]), span["name"]))
        for lane, inside in lanes.items():
            open_spans = []
            for span in inside:   # in the order of the file
                while open_spans and open_spans[-1][1] <= span[0]:
                    open_spans.pop()
                if open_spans:
                    self.assertLessEqual(span[1], open_spans[-1][1], f"{lane}: {span} in {open_spans[-1]}")
                open_spans.append(span)

    def check_overlap(self, spans):
        """On some replica a bucket is on its way while backward of an earlier layer begins."""
        backward = [s for s in spans if s["cat"] == "backward"]
        both = [(b["name"], s["name"]) for b in spans if b["cat"] == "bucket" for s in backward
                if s["pid"] == b["pid"] and b["ts"] < s["ts"] < b["ts"] + b["dur"]]
        self.assertTrue(both, "no bucket overlaps backward")

    def test_four_replicas_of_one_process(self):
        self.check(self.train("--replicas", "4"))

    def test_two_processes_of_two_replicas_write_one_file(self):
        if not HAVE_MPI:
            self.skipTest("mpirun is missing, or lockstep was built without MPI")
        prefix = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
        if os.geteuid() == 0:
            prefix.insert(1, "--allow-run-as-root")
        self.check(self.train("--strategy", "collective_all_reduce", "--replicas", "2", prefix=prefix))

    def test_what_stood_there_before_is_replaced_by_a_whole_trace(self):
        self.file.write_text("before")
        self.check(self.train("--replicas", "4"))


def main():
    global LOCKSTEP, HAVE_MPI
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LOCKSTEP = str(pathlib.Path(sys.argv[1]).resolve())
    doctor = json.loads(subprocess.run([LOCKSTEP, "doctor", "--json"], capture_output=True, check=True).stdout)
    HAVE_MPI = doctor["MPI"]["found"] and shutil.which("mpirun") is not None
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False).result
    if result.testsRun == len(result.skipped):
        print(result.skipped[0][1])
        sys.exit(77)
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main()
