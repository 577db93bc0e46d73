#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each checkpoint is evaluated once, by an evaluator that starts early or late, is killed, or meets damage.

usage: evaluator_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from unittest import mock

import program
from program import Case, ENDLESS, PATIENCE, mpirun, refused, said, whole


def events(file, kind):
    """Values of the lines of a kind, by step; a step has one line."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    found = [line for line in lines if line["event"] == kind]
    assert len({line["step"] for line in found}) == len(found), found
    return {line["step"]: line for line in found}


def values(line):
    return {key: line[key] for key in ("step", "epoch", "loss", "accuracy", "top5", "auc")}


class Evaluator(Case):
    def setUp(self):
        super().setUp()
        self.folder = self.top / "runs"
        self.done = self.folder / "evaluations.jsonl"

    def train(self, epochs, *flags, prefix=()):
        self.good("train", *ENDLESS, "--epochs", epochs, "--checkpoints", self.folder, "--keep", "99",
                  "--log", self.top / "run.jsonl", *flags, prefix=prefix)

    def evaluator(self, *flags):
        job = subprocess.Popen([program.LOCKSTEP, "train", "--task", "evaluator", "--checkpoints", self.folder, *flags],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.stderr.close)
        return job

    def test_it_finds_what_the_chief_finds_whenever_it_starts(self):
        early = self.evaluator("--log", str(self.top / "its.jsonl"))
        self.train(5, prefix=mpirun() if program.HAVE_MPI else ())
        out, errors = early.communicate(timeout=PATIENCE)
        self.assertEqual(early.returncode, 0, errors)
        chief = events(self.top / "run.jsonl", "evaluation")
        self.assertEqual(len(chief), 5)
        for file in (self.done, self.top / "its.jsonl"):
            found = events(file, "evaluation")
            self.assertEqual(list(found), list(chief))
            for step, line in found.items():  # the chief adds the sums of two replicas
                for key, value in values(line).items():
                    self.assertAlmostEqual(value or 0, chief[step][key] or 0, places=6, msg=key)
        self.assertEqual([line.split(":")[0] for line in out.splitlines()], [f"test after {step} steps" for step in chief])
        again = self.good("train", "--task", "evaluator", "--checkpoints", self.folder)
        self.assertEqual(again.stdout, "")
        self.done.unlink()
        late = self.good("train", "--task", "evaluator", "--checkpoints", self.folder, "--json")
        lines = [json.loads(line) for line in late.stdout.splitlines()]
        self.assertEqual({line["step"]: line["loss"] for line in lines},
                         {step: line["loss"] for step, line in events(self.done, "evaluation").items()})

    def test_one_that_is_killed_at_any_time_evaluates_each_once(self):
        self.train(12)
        for kill in range(40):
            job = self.evaluator("--threads", "1")
            lines = len(self.done.read_text().splitlines()) if self.done.exists() else 0
            begin = time.monotonic()
            while job.poll() is None and time.monotonic() - begin < PATIENCE:
                if self.done.exists() and len(self.done.read_text().splitlines()) > lines:
                    break
            time.sleep(kill % 3 * 0.003)
            job.kill()
            if job.wait() == 0:
                break
        else:
            self.fail("it never comes to its end")
        self.assertGreater(kill, 3)
        self.assertEqual(sorted(events(self.done, "evaluation")), whole(self.folder))

    def test_a_line_that_was_cut_off_is_of_no_checkpoint(self):
        self.train(2)
        self.folder.joinpath("evaluations.jsonl").write_text('{"time":1.5,"event":"evaluation","st')
        self.good("train", "--task", "evaluator", "--checkpoints", self.folder)
        lines = self.done.read_text().splitlines()[1:]
        self.assertEqual([json.loads(line)["step"] for line in lines], whole(self.folder))

    def test_what_was_damaged_or_removed_is_said_once(self):
        self.train(4, "--model", "mnist_cnn")
        first, second, third, last = whole(self.folder)
        next((self.folder / f"step-{second:010}").glob("shard*")).write_bytes(b"damage")
        job = self.evaluator("--threads", "1")
        self.assertIn(f"test after {first} steps", job.stdout.readline())
        os.kill(job.pid, signal.SIGSTOP)  # it has the list of four
        shutil.rmtree(self.folder / f"step-{third:010}")
        os.kill(job.pid, signal.SIGCONT)
        out, errors = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 0, errors)
        self.assertEqual(out.count("test after"), 1, out)
        self.assertIn(f"step {second} is not evaluated: ", errors)
        self.assertIn(f"step {third} is not evaluated: the run removed it before", errors)
        self.assertEqual(sorted(events(self.done, "skipped")), [second, third])
        again = self.good("train", "--task", "evaluator", "--checkpoints", self.folder)
        self.assertEqual(len(said(again)), 1)
        self.assertIn("4 checkpoints were evaluated before", said(again)[0])

    def test_a_task_of_tf_config_watches_and_ends_by_signals(self):
        config = {"cluster": {"worker": ["a:1", "b:1"], "evaluator": ["c:1"]}, "task": {"type": "evaluator", "index": 0}}
        for number, code in ((signal.SIGTERM, 143), (signal.SIGUSR1, 75)):
            with mock.patch.dict(os.environ, {"TF_CONFIG": json.dumps(config)}):
                job = self.evaluator()
            self.assertIn("waiting for checkpoints in", job.stderr.readline())
            job.send_signal(number)
            self.assertEqual(job.wait(30), code)

    def test_a_second_evaluator_and_one_without_a_folder_are_refused(self):
        refused(self, ["train", "--task", "evaluator"], 64, ["name it with --checkpoints"])
        job = self.evaluator()
        self.assertIn("waiting for checkpoints in", job.stderr.readline())
        refused(self, ["train", "--task", "evaluator", "--checkpoints", self.folder], 74, ["another evaluator watches"])


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
