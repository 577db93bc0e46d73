#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`lockstep train --summary`: TensorBoard's own reader finds the scalars that the JSON lines have, over a run
and its continuations; only the chief writes.

usage: summary_test.py LOCKSTEP [NAMES OF TESTS]

TensorBoard is looked for in the python that LOCKSTEP_TENSORBOARD_PYTHON names, else in this one; without it
that test is skipped.
"""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

LOCKSTEP = ""
HAVE_MPI = True
TRAIN = ["--model", "mlp", "--examples", "300", "--batch", "50", "--threads", "1", "--schedule", "constant"]
PATIENCE = 120  # seconds for anything; only a defect takes so long
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def python_with_tensorboard():
    python = os.environ.get("LOCKSTEP_TENSORBOARD_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import tensorboard"], capture_output=True, check=False)
    return python if found.returncode == 0 else None


def numbers(message):
    """The fields of a protobuf message that are varints, and which there are."""
    at, found = 0, {}

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            value |= (message[at] & 0x7f) << shift
            at, shift = at + 1, shift + 7
            if message[at - 1] < 0x80:
                return value

    while at < len(message):
        key = varint()
        found[key >> 3] = varint() if key & 7 in (0, 2) else None
        at += {0: 0, 1: 8, 2: found[key >> 3] or 0, 5: 4}[key & 7]
    return found


def events(path):
    """(what, step) of each event of a file: the version, the mark of the first step, or scalars."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        length, = struct.unpack_from("<Q", data, at)
        fields = numbers(data[at + 12:at + 12 + length])
        yield next(what for field, what in ((3, "version"), (7, "mark"), (5, "scalars")) if field in fields), fields[2]
        at += 16 + length


class Summary(unittest.TestCase):
    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        self.top = pathlib.Path(top.name)
        self.folder = self.top / "summary"

    def train(self, *arguments, prefix=()):
        done = subprocess.run([*prefix, LOCKSTEP, "train", *TRAIN, *arguments, "--summary", self.folder, "--log",
                               self.top / "log"], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def logged(self):
        """The JSON lines as TensorBoard would show them: what a run does again counts as the later run has it."""
        scalars, last = {}, -1
        for line in (self.top / "log").read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            prefix = {"step": "train/", "evaluation": "test/"}.get(event["event"])
            if prefix is None:
                continue
            if event["step"] < last or event["event"] == "step" and event["step"] == last:
                for values in scalars.values():
                    for step in [step for step in values if step >= event["step"]]:
                        del values[step]
            last = event["step"]
            for key in ("loss", "accuracy", "rate", "examples_per_second", "rank0_waited_ms"):
                if key in event:
                    scalars.setdefault(prefix + key, {})[event["step"]] = event[key]
        return scalars

    def compare(self, python):
        read = subprocess.run([python, "-c", READER, self.folder], capture_output=True, text=True, check=True,
                              timeout=PATIENCE)
        scalars = json.loads(read.stdout.strip().splitlines()[-1])
        logged = self.logged()
        self.assertEqual(set(scalars), set(logged))
        for tag, values in scalars.items():
            # A run that had nothing left to train evaluates again where the run before it had.
            self.assertEqual(sorted({step for step, _ in values}), sorted(logged[tag]), tag)
            for step, value in values:
                self.assertAlmostEqual(value, logged[tag][step], delta=1e-6 * abs(logged[tag][step]), msg=(tag, step))

    def test_tensorboard_reads_what_the_json_lines_say(self):
        python = python_with_tensorboard()
        if python is None:
            self.skipTest("TensorBoard is not installed; LOCKSTEP_TENSORBOARD_PYTHON may name a python that has it")
        checkpoints = ["--checkpoints", self.top / "c"]
        self.train("--steps", "9", *checkpoints, "--every", "4")
        self.compare(python)
        # As after a kill behind the checkpoint of step 8: the next run does step 9 again.
        shutil.rmtree(self.top / "c" / "step-0000000009")
        self.train("--steps", "14", *checkpoints)
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        self.assertEqual(sorted(self.logged()["train/loss"]), list(range(1, 15)))
        self.compare(python)
        self.train("--steps", "14", *checkpoints)
        self.assertEqual(sorted(self.logged()["train/loss"]), list(range(1, 15)))
        self.compare(python)

    def test_a_finished_run_that_is_started_again_keeps_its_curves(self):
        for _ in range(2):
            self.train("--steps", "9", "--checkpoints", self.top / "c")
        first, again = (list(events(path)) for path in sorted(self.folder.iterdir(), key=lambda p: p.stat().st_mtime_ns))
        self.assertEqual(first[:2] + first[-1:], [("version", 0), ("mark", 1), ("scalars", 9)])
        self.assertEqual(again, [("version", 0), ("mark", 10), ("scalars", 9)])
        lines = [json.loads(line) for line in (self.top / "log").read_text(encoding="utf-8").splitlines()]
        self.assertEqual([line["step"] for line in lines if line["event"] == "evaluation"][-2:], [9, 9])

    def test_only_the_chief_writes(self):
        if not HAVE_MPI:
            self.skipTest("mpirun is missing, or lockstep was built without MPI")
        prefix = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2"]
        if os.geteuid() == 0:
            prefix.insert(1, "--allow-run-as-root")
        self.train("--strategy", "collective_all_reduce", "--steps", "3", prefix=prefix)
        self.assertEqual(len(list(self.folder.iterdir())), 1)


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
