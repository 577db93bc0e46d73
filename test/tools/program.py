#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the tests of the program share: how it is run, folders of data and of checkpoints, a case that has both."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

LOCKSTEP = ""
HAVE_MPI = True
NO_MPI = "the parts under mpirun are left out: mpirun is missing, or lockstep was built without MPI"
MLP = ["--model", "mlp", "--batch", "50", "--threads", "1"]
ENDLESS = MLP + ["--examples", "300"]  # until --steps or --epochs says when to end
SMALL = ENDLESS + ["--epochs", "1"]
LONG = ENDLESS + ["--steps", "100000", "--every", "50", "--eval", "0"]
COLLECTIVE = ["--strategy", "collective_all_reduce"]
PATIENCE = 120  # seconds for anything; only a defect takes so long


def mpirun(processes=2):
    if not HAVE_MPI:
        raise unittest.SkipTest(NO_MPI)
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(processes)]
    if os.geteuid() == 0:
        command.insert(1, "--allow-run-as-root")
    return command


def run(*arguments, prefix=(), where=None):
    return subprocess.run([*prefix, LOCKSTEP, *map(str, arguments)], capture_output=True, text=True,
                          timeout=PATIENCE, cwd=where)


def children(pid):
    text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def whole(folder):
    return sorted(int(path.name[5:]) for path in pathlib.Path(folder).glob("step-*")
                  if "." not in path.name and (path / "manifest.json").exists())


def idx(path, *sizes, missing=0):
    count = 1
    for size in sizes:
        count *= size
    head = struct.pack(">BBBB", 0, 0, 8, len(sizes)) + b"".join(struct.pack(">I", s) for s in sizes)
    path.write_bytes(head + bytes(i % 10 for i in range(count - missing)))


def idx_folder(folder, side, missing=0):
    folder.mkdir()
    for part in ("train", "t10k"):
        idx(folder / f"{part}-images-idx3-ubyte", 60, side, side, missing=missing)
        idx(folder / f"{part}-labels-idx1-ubyte", 60)
    return folder


class Case(unittest.TestCase):
    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        self.top = pathlib.Path(top.name)
        cache = tempfile.TemporaryDirectory()  # of measured costs: each test measures for itself
        self.addCleanup(cache.cleanup)
        variables = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": cache.name})
        variables.start()
        self.addCleanup(variables.stop)

    def good(self, *arguments, prefix=()):
        done = run(*arguments, prefix=prefix)
        self.assertEqual(done.returncode, 0, f"{arguments}\n{done.stderr}")
        return done

    def result(self, *arguments, prefix=()):
        """The JSON object that a good run prints, and nothing else, on standard output."""
        done = self.good("train", *arguments, "--json", prefix=prefix)
        lines = done.stdout.strip().splitlines()
        self.assertEqual(len(lines), 1, done.stdout)
        return json.loads(lines[0])


def said(done):
    """The lines of standard error, but for that of a busy machine, on which measuring costs takes long."""
    return [line for line in done.stderr.splitlines() if "are still being measured" not in line]


def refused(case, arguments, code, words, prefix=()):
    """One line that says so, the exit code, and nothing else."""
    done = run(*arguments, prefix=prefix)
    lines = said(done)
    if prefix:   # mpirun has lines of its own
        lines = [line for line in lines if line.startswith("lockstep: ")]
    case.assertEqual(done.returncode, code, done.stderr)
    case.assertEqual(done.stdout, "")
    case.assertEqual(len(lines), 1, done.stderr)
    case.assertTrue(lines[0].startswith("lockstep: "), lines)
    for word in words:
        case.assertIn(word, lines[0])


def main(doc):
    """Runs the tests of the calling program, whose first argument is the program lockstep. Whether all passed."""
    global LOCKSTEP, HAVE_MPI
    if len(sys.argv) < 2:
        sys.exit(doc)
    LOCKSTEP = os.path.abspath(sys.argv.pop(1))
    parts = json.loads(run("doctor", "--json").stdout)
    HAVE_MPI = parts["MPI"]["found"] and shutil.which("mpirun") is not None
    if not HAVE_MPI:
        print(NO_MPI)
    return unittest.main(verbosity=1, exit=False).result.wasSuccessful()
