#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Jobs under launchers of other projects from PyPI: MPICH's mpiexec, and torchrun with one agent and with two.

usage: launchers_test.py LOCKSTEP FOLDER [NAMES OF TESTS]

FOLDER has the virtual environments that prepare.sh makes.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import program  # noqa: E402

FOLDER = pathlib.Path(sys.argv.pop(2)).resolve()
SECRET = "0123456789abcdef0123456789abcdef"
DIGITS = ["train", "--model", "mnist_cnn", "--examples", "3000", "--epochs", "2", "--batch", "64", "--threads", "1",
          "--algorithm", "ring", "--update", "fused", "--json"]
BITS = ("loss", "test_loss", "test_accuracy", "replicas")


def started(words, **variables):
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, **variables})
    return done, time.monotonic() - begin


class Launchers(unittest.TestCase):
    wanted = {}

    def of_mpirun(self, tasks):
        if tasks not in self.wanted:
            done = program.run(*DIGITS, prefix=program.mpirun(tasks))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.wanted[tasks] = json.loads(done.stdout)
        return self.wanted[tasks]

    def compare(self, launcher, tasks, done, took):
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][0])
        self.assertEqual([found[key] for key in BITS], [self.of_mpirun(tasks)[key] for key in BITS], launcher)
        print(f"{launcher}, {tasks} tasks: accuracy {found['test_accuracy']:.4f}, losses as under mpirun to all digits; "
              f"{took:.1f} s", flush=True)

    def test_mpich(self):
        mpiexec = FOLDER / "mpich/bin/mpiexec"
        version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=True).stdout.split("Version:")[1].split()[0]
        for tasks in (1, 2, 4):
            done, took = started([mpiexec, "-n", tasks, program.LOCKSTEP, *DIGITS])
            self.compare(f"MPICH {version}", tasks, done, took)

    def torchrun(self, *arguments, **variables):
        torchrun = FOLDER / "torch/bin/torchrun"
        return subprocess.Popen([str(word) for word in (torchrun, "--no-python", *arguments, program.LOCKSTEP, *DIGITS)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **variables})

    def test_torchrun(self):
        version = next((FOLDER / "torch/lib").glob("python*/site-packages/torch-*.dist-info")).name.split("-")[1].removesuffix(".dist")
        for tasks in (1, 2, 4):
            done, took = started([FOLDER / "torch/bin/torchrun", "--no-python", "--nproc-per-node", tasks, program.LOCKSTEP, *DIGITS])
            self.compare(f"torchrun {version}", tasks, done, took)

    def test_two_agents_of_torchrun_give_the_address_through_their_store(self):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            port = 29400 + os.getpid() % 500
            agents = [self.torchrun("--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend", "c10d", "--rdzv-id", "field",
                                    "--rdzv-endpoint", f"127.0.0.1:{port}", LOCKSTEP_SECRET=SECRET, XDG_CACHE_HOME=folder)
                      for _ in range(2)]
            outputs = [agent.communicate(timeout=300) for agent in agents]
            done = subprocess.CompletedProcess([], max(agent.returncode for agent in agents), "".join(out for out, _ in outputs),
                                               "".join(errors for _, errors in outputs))
            self.compare("torchrun, two agents", 2, done, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
