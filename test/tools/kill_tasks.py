#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Parameter server jobs under mpirun: they train, and tasks that are killed come back, or the job ends.

usage: kill_tasks.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

import program
import shards
from program import Case, mpirun, whole

JOB = ["--model", "mlp", "--threads", "1", "--examples", "2000", "--eval", "0", "--deadline", "10",
       "--strategy", "parameter_server", "--servers", "2"]
PATIENCE = 120  # seconds for anything; only a defect takes so long


def tasks(job):
    """Process ids by the name of the task, e.g. "worker 1", of this job alone."""
    found = {}
    for folder in pathlib.Path("/proc").iterdir():
        try:
            if not folder.name.isdigit():
                continue
            environment = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        words = dict(word.split("=", 1) for word in environment if "=" in word)
        if words.get("KILL_TASKS_JOB") != job or "TF_CONFIG" not in words:
            continue
        task = json.loads(words["TF_CONFIG"])["task"]
        found[f"{task['type']} {task['index']}"] = int(folder.name)
    return found


class Tasks(Case):
    def begin(self, *flags, processes=5):
        self.job = f"{os.getpid()}-{random.random()}"
        prefix = mpirun(processes)
        self.addCleanup(self.end_all)
        self.running = subprocess.Popen(
            [prefix[0], "--enable-recovery", *prefix[1:], program.LOCKSTEP, "train", *JOB, "--json", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, KILL_TASKS_JOB=self.job))

    def end_all(self):
        if self.running.poll() is None:
            self.running.kill()
        for pid in tasks(self.job).values():
            os.kill(pid, signal.SIGKILL)

    def until(self, what, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            self.assertIsNone(self.running.poll(), f"{what}: the job has ended")
            time.sleep(0.02)

    def kill(self, name):
        self.until(f"{name} is there", lambda: name in tasks(self.job))
        pid = tasks(self.job)[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def result(self):
        out, err = self.running.communicate(timeout=PATIENCE)
        self.assertEqual(self.running.returncode, 0, err)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        self.assertEqual(len(lines), 1, out + err)
        self.assertEqual(tasks(self.job), {}, "nobody is left")
        return json.loads(lines[0]), err

    def saved(self, folder, steps):
        self.until("a checkpoint", lambda: folder.exists() and whole(folder) and whole(folder)[-1] >= steps)

    def test_all_train(self):
        for flags in ([], ["--sync"], ["--sync", "--aggregate", "2"]):
            self.begin("--epochs", "2", *flags)
            result, err = self.result()
            self.assertEqual((result["replicas"], result["steps"]), (3, 2 * 32), flags)
            self.assertEqual("all 64 steps belong to the warm-up" in err, not flags, err)

    def test_tasks_of_one_process_train_to_the_same_bits(self):
        self.begin("--sync", "--steps", "20", "--checkpoints", self.top / "many")
        self.result()
        self.good("train", *JOB, "--replicas", "3", "--sync", "--steps", "20", "--checkpoints", self.top / "one")
        self.assertEqual(shards.weights(self.top / "many"), shards.weights(self.top / "one"))

    def test_all_gradients_make_the_step_of_an_all_reduce(self):
        one_step = ["--model", "mlp", "--threads", "1", "--examples", "500", "--batch", "62", "--steps", "1"]
        for folder, rate in (("before", "1e-30"), ("one", "0.02")):
            self.good("train", *one_step, "--strategy", "collective_all_reduce", "--rate", rate, "--checkpoints",
                      self.top / folder, prefix=mpirun(4))
        self.begin("--batch", "62", "--examples", "500", "--steps", "1", "--sync", "--checkpoints", self.top / "servers", processes=6)
        self.assertEqual(self.result()[0]["replicas"], 4)
        before, one, other = (shards.weights(self.top / name) for name in ("before", "one", "servers"))
        for name in one:
            apart = max(abs(a - b) for a, b in zip(one[name], other[name]))
            self.assertLessEqual(apart, 1e-6, name)
        self.assertLess(shards.relative_change(other, one, before), 1e-5)

    def test_a_worker_comes_back(self):
        for flags, steps in (([], 600), (["--sync"], 250)):
            folder = self.top / f"workers{len(flags)}"
            self.begin("--steps", steps, "--checkpoints", folder, "--every", "50", *flags)
            self.saved(folder, 50)
            killed = self.kill("worker 1")
            self.until("it came back", lambda: tasks(self.job).get("worker 1", killed) != killed)
            result, err = self.result()
            self.assertEqual(result["steps"], steps)
            self.assertIn("it is started again, 1 of", err)

    def test_a_server_is_given_the_last_checkpoint(self):
        folder = self.top / "servers"
        self.begin("--steps", "600", "--checkpoints", folder, "--every", "50")
        self.saved(folder, 50)
        self.kill("ps 1")
        result, err = self.result()
        self.assertEqual(result["steps"], 600)
        self.assertIn("was given the checkpoint of step", err)

    def test_a_synchronous_job_goes_on_as_a_whole_from_the_last_checkpoint(self):
        folder = self.top / "sync"
        self.begin("--sync", "--steps", "250", "--checkpoints", folder, "--every", "50")
        self.saved(folder, 50)
        self.kill("ps 1")
        result, err = self.result()
        self.assertEqual(result["steps"], 250)
        self.assertRegex(err, r"training continues from step \d+ \(1 of 3 times\)")

    def test_checkpoints_by_time(self):
        for flags in ([], ["--sync"]):
            folder = self.top / f"time{len(flags)}"
            self.begin("--steps", "200", "--checkpoints", folder, "--every", "0.01s", *flags)
            result, err = self.result()
            self.assertEqual((result["steps"], len(whole(folder)), whole(folder)[-1]), (200, 3, 200), err)

    def test_without_the_chief_all_end_within_seconds(self):
        folder = self.top / "chief"
        self.begin("--steps", "1000000", "--checkpoints", folder, "--every", "50", "--deadline", "60")
        self.saved(folder, 50)
        chief = "worker 0" if "worker 0" in tasks(self.job) else "chief 0"
        self.assertEqual(pathlib.Path(f"/proc/{tasks(self.job)[chief]}/comm").read_text(), "lockstep\n")
        self.kill(chief)
        out, err = self.running.communicate(timeout=30)  # not by the deadline: they are told
        self.assertNotIn("{", out, "there is no result; mpirun's own status is 0 with --enable-recovery, whatever its processes'")
        self.assertIn("was killed by signal 9", err)
        self.assertIn("the job ends with its chief", err)
        self.assertEqual(err.count("the chief ended the job: it was killed"), 4, err)  # 2 workers, 2 servers
        end = time.monotonic() + 60
        while tasks(self.job) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(tasks(self.job), {}, "nobody is left")

    def test_a_chief_that_fails_at_once_ends_all_within_seconds(self):
        """Workers that call it for the first time after its end are told, too."""
        folder = self.top / "other"
        self.good("train", "--model", "lenet5", "--examples", "64", "--epochs", "1", "--eval", "0", "--checkpoints", folder)
        self.begin("--steps", "1000000", "--checkpoints", folder, "--deadline", "60")
        out, err = self.running.communicate(timeout=30)  # not by the deadline
        self.assertNotIn("{", out)
        self.assertEqual(err.count("lockstep: the checkpoint of step 1 holds another model"), 1, err)
        self.assertNotIn("Connection refused", err)
        self.assertIn("the chief ended the job: ", err)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
