#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a profiler hears of `lockstep train`, which it has started: ranges by NVTX, of replicas on processors too.
They are balanced on each thread, and named.

usage: ranges_test.py LOCKSTEP LISTENER [NAMES OF TESTS] (listener: the library of range_listener.cpp)
"""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = LISTENER = ""
STEPS = 12
LAYERS = ["conv1", "tanh1", "pool1", "conv2", "tanh2", "pool2", "dense1", "tanh3", "dense2", "tanh4", "dense3"]
TRAIN = ["--examples", "1280", "--batch", "128", "--steps", str(STEPS), "--eval", "0", "--threads", "1"]
BUCKETS = ["--bucket", "0.05"]   # five
PATIENCE = 120  # seconds for anything; only a defect takes so long


class Ranges(unittest.TestCase):
    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        self.folder = pathlib.Path(top.name)

    def train(self, *arguments, model="lenet5", code=0):
        environment = {**os.environ, "NVTX_INJECTION64_PATH": LISTENER, "RANGE_LISTENER": str(self.folder)}
        done = subprocess.run([LOCKSTEP, "train", "--model", model, *TRAIN, *arguments], capture_output=True, text=True, timeout=PATIENCE,
                              check=False, env=environment)
        self.assertEqual(done.returncode, code, done.stderr)
        files = list(self.folder.glob("RANGES.*"))
        self.assertEqual(len(files), 1)
        self.read(files[0].read_text(encoding="utf-8").splitlines())

    def read(self, lines):
        """`self.nested`: of each thread its ranges, as (those that it lies in, name); `self.flown`: names of the others."""
        self.assertEqual(lines[-1].split(), ["over", "0"], "the session did not end it")
        stacks, flying = collections.defaultdict(list), {}
        self.nested, self.flown = collections.defaultdict(list), []
        for line in lines[:-1]:
            what, number, *name = line.split(" ", 2)
            if what == "push":
                self.nested[number].append((tuple(stacks[number]), name[0]))
                stacks[number].append(name[0])
            elif what == "pop":
                self.assertTrue(stacks[number], "a pop more than pushes")
                stacks[number].pop()
            elif what == "start":
                self.assertNotIn(number, flying)
                flying[number] = name[0]
                self.flown.append(name[0])
            else:
                self.assertEqual(what, "end", line)
                flying.pop(number)
        self.assertEqual({thread: stack for thread, stack in stacks.items() if stack}, {}, "pushed and not popped")
        self.assertEqual(flying, {}, "started and not ended")

    def check_steps(self, replicas):
        self.assertEqual(len(self.nested), replicas)
        for ranges in self.nested.values():
            outermost = [name for inside, name in ranges if not inside]
            self.assertEqual([name for name in outermost if name.startswith("step ")], [f"step {k + 1}" for k in range(STEPS)])
            for k in range(STEPS):
                parts = [name for inside, name in ranges if inside == (f"step {k + 1}",)]
                passes = [name for name in parts if name.startswith(("forward: ", "backward: ", "loss", "input"))]
                passes = list(dict.fromkeys(passes))  # a layer may take its batch in slices
                self.assertEqual(sorted(passes), sorted(["input", "loss"] + [f"{way}: {layer}" for layer in LAYERS
                                                                            for way in ("forward", "backward")]))
                self.assertLess(passes.index("input"), passes.index("forward: conv1"))
                self.assertLess(passes.index("forward: dense3"), passes.index("loss"))
                self.assertLess(passes.index("loss"), passes.index("backward: dense3"))
                for part in ("finish", "report"):
                    self.assertIn(f"strategy: {part}", parts)
        buckets = collections.Counter(name for name in self.flown if name.startswith("bucket"))
        self.assertEqual(len(buckets), 5, buckets)
        self.assertEqual(set(buckets.values()), {replicas * STEPS})

    def test_parts_of_a_step_have_names(self):
        self.train(*BUCKETS, "--replicas", "2", "--eval", "1", "--checkpoints", str(self.folder / "run"))
        self.check_steps(2)
        for ranges in self.nested.values():
            self.assertIn(((), "checkpoint"), ranges)
            self.assertIn(((), "evaluation"), ranges)
            self.assertIn((("evaluation",), "forward: conv1"), ranges)

    def test_beside_a_profile_of_our_own(self):
        self.train(*BUCKETS, "--replicas", "2", "--profile", str(self.folder / "trace.json"), "--profile-steps", "2")
        self.check_steps(2)

    def test_a_run_that_fails_leaves_nothing_open(self):
        self.train("--replicas", "2", "--rate", "1e30", model="mnist_cnn", code=64)
        self.assertIn(((), "step 1"), next(iter(self.nested.values())))

    def test_parameter_servers(self):
        self.train("--strategy", "parameter_server", "--replicas", "2")
        names = {name for ranges in self.nested.values() for _, name in ranges}
        self.assertLessEqual({"step 3", "input", "forward: conv1", "loss", "backward: conv1", "strategy: gradient_ready"}, names)


def main():
    global LOCKSTEP, LISTENER
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    LOCKSTEP, LISTENER = (str(pathlib.Path(name).resolve()) for name in sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])


if __name__ == "__main__":
    main()
