#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory that `train` prints before the first step is what the system reports while it trains: within the larger of
10 % and 16 MB (31 MB without AVX-512) of the proportional set size of each process.

usage: memory_test.py LOCKSTEP
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

LOCKSTEP = ""
# Bytes. Without AVX-512 oneDNN allocates up to 5 MB for the time of a product, which is not printed. glibc does not
# return blocks of that size to the system before three of them are free.
LEAST = 16e6 if re.search(r"\bavx512f\b", pathlib.Path("/proc/cpuinfo").read_text()) else 31e6
STEPS = 6       # after so many nothing is taken any more
PATIENCE = 120  # seconds; only a defect takes so long


def measured(pid):
    """Bytes of a process, memory that k processes share counted 1/k in each."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)[1]) * 1024


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


# Meson sets this to find reads of memory that was never written. It also makes memory of what is reserved
# only: what a job takes is measured without.
os.environ.pop("MALLOC_PERTURB_", None)


class Memory(unittest.TestCase):
    def test_without_proc_memory_is_not_taken_for_zero(self):
        hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$0" "$@"']
        if subprocess.run([*hidden, "true"], capture_output=True).returncode != 0:
            self.skipTest("/proc cannot be hidden here")
        done = subprocess.run([*hidden, LOCKSTEP, "doctor"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertRegex(done.stdout, r"(?m)^found  memory +[0-9.]*[1-9][0-9.]* GiB may be used$")
        done = subprocess.run([*hidden, LOCKSTEP, "train", "--model", "mlp", "--examples", "100", "--batch", "50", "--steps", "2",
                               "--device", "cpu"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn(" 0.0 the program", done.stderr)

    def check(self, model, flags, prefix=(), batch=128):
        with tempfile.TemporaryDirectory() as top, tempfile.TemporaryFile("w+") as errors:
            log = pathlib.Path(top) / "log"
            job = subprocess.Popen([*prefix, LOCKSTEP, "train", "--model", model, "--batch", str(batch), "--examples",
                                    "2000", "--epochs", "1000000", "--eval", "0", "--verbose", "--log", str(log),
                                    *([] if "--threads" in flags else ["--threads", "1"]), *flags], stdout=subprocess.DEVNULL, stderr=errors)
            try:
                begin = time.monotonic()
                while not log.exists() or log.read_text().count("\n") < STEPS:
                    self.assertIsNone(job.poll(), "it ended by itself")
                    self.assertLess(time.monotonic() - begin, PATIENCE, "it does not train")
                    time.sleep(0.05)
                sizes = [measured(pid) for pid in (children(job.pid) if prefix else [job.pid])]
            finally:
                job.terminate()
                job.wait()
            errors.seek(0)
            lines = [line for line in errors.read().splitlines() if line.startswith("memory: ")]
        self.assertEqual(len(lines), 1, lines)
        printed = float(re.match(r"memory: ([\d.]+) MiB per process", lines[0])[1]) * 2**20
        print(f"{model} {' '.join(flags)}, batch {batch}: printed {printed / 2**20:.1f} MiB, measured "
              f"{', '.join(f'{size / 2**20:.1f}' for size in sizes)}")
        self.assertEqual(len(sizes), 2 if prefix else 1)
        for size in sizes:
            self.assertLessEqual(abs(printed - size), max(0.1 * size, LEAST), lines[0])

    def test_one_replica(self):
        for model in ("mlp", "mlp_wide", "mnist_cnn"):
            with self.subTest(model):
                self.check(model, [])

    def test_two_replicas(self):
        for model in ("mlp", "mlp_wide", "mnist_cnn"):
            with self.subTest(model):
                self.check(model, ["--replicas", "2"])

    def test_many_replicas(self):
        for model, replicas in (("mlp", 8), ("mnist_cnn", 8), ("lenet5", 16)):
            with self.subTest(model):
                self.check(model, ["--replicas", str(replicas)])

    def test_several_threads(self):
        self.check("mnist_cnn", ["--replicas", "2", "--threads", "4"])

    def test_two_processes(self):
        if shutil.which("mpirun") is None or not json.loads(
                subprocess.run([LOCKSTEP, "doctor", "--json"], capture_output=True, check=True).stdout)["MPI"]["found"]:
            self.skipTest("mpirun is missing, or lockstep was built without MPI")
        mpirun = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "--bind-to",
                  "none", "-n", "2"]
        for model in ("mlp", "mlp_wide", "mnist_cnn"):
            with self.subTest(model):
                self.check(model, ["--strategy", "collective_all_reduce"], mpirun)

    def test_other_batches(self):
        self.check("mnist_cnn", ["--replicas", "2"], batch=16)
        self.check("mnist_cnn", [], batch=1000)
        self.check("mnist_cnn", ["--accumulate", "4", "--optimizer", "adam"], batch=1000)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    LOCKSTEP = sys.argv.pop(1)
    unittest.main(verbosity=1)
