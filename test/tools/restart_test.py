#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What people may rely on when a run ends and begins again: signals, who holds the folder of checkpoints, going on
from a checkpoint.

usage: restart_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time

import program
from program import COLLECTIVE, Case, ENDLESS, LONG, PATIENCE, SMALL, children, mpirun, refused, run, whole


class Signals(Case):
    def stop(self, number, prefix=(), target="program"):
        """Starts a long run, and sends the signal when there is a checkpoint. Returns its exit code, its
        errors, and its folder."""
        folder = self.top / f"{number}{target}{len(prefix)}"
        with tempfile.TemporaryFile("w+") as errors:
            job = subprocess.Popen([*prefix, program.LOCKSTEP, "train", *LONG, "--checkpoints", str(folder),
                                    *(COLLECTIVE if prefix else [])], stdout=subprocess.DEVNULL, stderr=errors)
            try:
                begin = time.monotonic()
                while not whole(folder):
                    self.assertIsNone(job.poll(), "it ended by itself")
                    self.assertLess(time.monotonic() - begin, PATIENCE, "it saves nothing")
                    time.sleep(0.02)
                os.kill(children(job.pid)[-1] if target == "rank" else job.pid, number)
                code = job.wait(30)
            finally:
                job.kill()
                job.wait()
            errors.seek(0)
            return code, errors.read(), folder

    def goes_on(self, folder, prefix=(), flags=()):
        saved = whole(folder)[-1]
        result = self.result(*ENDLESS, *flags, "--steps", saved + 5, "--checkpoints", folder, prefix=prefix)
        self.assertEqual((result["first_step"], result["steps"]), (saved, saved + 5))

    def test_one_process_saves_its_step_and_goes_on_later(self):
        for number, wanted in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGQUIT, 131), (signal.SIGHUP, 75),
                               (signal.SIGUSR1, 75), (signal.SIGUSR2, 75), (signal.SIGXCPU, 75)):
            code, errors, folder = self.stop(number)
            self.assertEqual(code, wanted, errors)
            self.assertIn(f"stopped by {number.name} after step {whole(folder)[-1]}, which was saved in", errors)
            self.assertNotIn("the run ends after this step", errors)  # it has ended
            self.goes_on(folder)

    def test_a_signal_within_a_long_step_is_answered_at_once(self):
        folder = self.top / "long"
        flags = ["--model", "resnet20", "--batch", "2000", "--examples", "4000", "--checkpoints", folder, *COLLECTIVE]
        job = subprocess.Popen([*map(str, [*mpirun(), program.LOCKSTEP, "train", *flags])], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True)
        lines = []
        try:
            while not lines or "all-reduce: " not in lines[-1]:
                lines.append(job.stderr.readline())
                self.assertTrue(lines[-1], lines)
            time.sleep(1)
            os.kill(children(job.pid)[-1], signal.SIGUSR1)
            os.kill(children(job.pid)[0], signal.SIGUSR1)
            while "the run ends after this step" not in lines[-1]:
                lines.append(job.stderr.readline())
                self.assertTrue(lines[-1], lines)
            self.assertEqual(whole(folder), [])
        finally:
            job.kill()
            job.communicate()

    def test_a_signal_to_one_rank_stops_all_at_the_same_step(self):
        code, errors, folder = self.stop(signal.SIGTERM, mpirun(), "rank")
        self.assertEqual(code, 143, errors)
        saved = whole(folder)[-1]
        self.assertIn(f"after step {saved}, which was saved in", errors)
        self.assertEqual(len(list(folder.glob(f"step-*{saved}/*.safetensors"))), 2)
        self.goes_on(folder, mpirun(), COLLECTIVE)

    def test_schedulers_warn_mpirun_before_they_kill_it(self):
        for number in (signal.SIGUSR1, signal.SIGUSR2):   # which mpirun passes on at once
            code, errors, folder = self.stop(number, mpirun(), "launcher")
            self.assertEqual(code, 75, errors)
            self.assertIn(f"after step {whole(folder)[-1]}, which was saved in", errors)
            self.goes_on(folder, mpirun(), COLLECTIVE)

    def test_signals_that_are_ignored_at_the_start_stay_ignored(self):
        ignored = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1)
        folder = self.top / "c"
        with Started(folder, "--every", "50", ignored=ignored) as first:
            for number in ignored:
                os.kill(first.job.pid, number)
            later = whole(folder)[-1] + 100
            begin = time.monotonic()
            while first.job.poll() is None and whole(folder)[-1] < later and time.monotonic() - begin < PATIENCE:
                time.sleep(0.02)
            code, said = first.end(signal.SIGTERM)
            self.assertEqual(code, 143, said)
            self.assertGreaterEqual(whole(folder)[-1], later)

    def test_a_signal_to_mpirun_leaves_a_whole_checkpoint(self):
        # mpirun ends with a code of its own, and kills what has not ended a second later.
        code, errors, folder = self.stop(signal.SIGTERM, mpirun(), "launcher")
        self.assertNotEqual(code, 0, errors)
        self.goes_on(folder, mpirun(), COLLECTIVE)


class Started:
    """A program that trains into a folder until it is told to end."""

    def __init__(self, folder, *flags, prefix=(), ignored=()):
        self.errors = tempfile.TemporaryFile("w+")
        self.job = subprocess.Popen([*prefix, program.LOCKSTEP, "train", *ENDLESS, "--steps", "1000000", "--eval", "0",
                                     "--checkpoints", str(folder), *flags], stdout=subprocess.DEVNULL, stderr=self.errors,
                                    preexec_fn=lambda: [signal.signal(each, signal.SIG_IGN) for each in ignored])
        begin = time.monotonic()
        while not whole(folder) and self.job.poll() is None and time.monotonic() - begin < PATIENCE:
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.kill()
        self.job.wait()
        self.errors.close()

    def end(self, number, pid=None):
        """Its exit code and what it said."""
        os.kill(pid or self.job.pid, number)
        code = self.job.wait(30)
        self.errors.seek(0)
        return code, self.errors.read()


class Folder(Case):
    """One run at a time saves into a folder."""

    def test_a_second_run_is_refused_at_once_and_the_first_goes_on(self):
        for prefix, flags in (((), []), (mpirun() if program.HAVE_MPI else None, COLLECTIVE)):
            if prefix is None:
                continue
            folder = self.top / f"c{len(prefix)}"
            with Started(folder, "--every", "50", *flags, prefix=prefix) as first:
                chief = int((folder / "lock").read_text().split()[1])
                self.assertIn(chief, children(first.job.pid) if prefix else [first.job.pid])
                for other in ((), prefix):
                    second = ["train", *SMALL, *(COLLECTIVE if other else []), "--checkpoints", folder]
                    begin = time.monotonic()
                    refused(self, second, 74, [f"{folder} is in use", f"pid {chief} on host {platform.node()}"],
                            prefix=other)
                    self.assertLess(time.monotonic() - begin, 20)
                code, said = first.end(signal.SIGTERM, chief)
                self.assertEqual(code, 143, said)
                self.assertIn(f"after step {whole(folder)[-1]}, which was saved in", said)
            self.assertEqual([path.name for path in folder.iterdir() if not path.name.startswith("step-")], [])

    def test_a_run_that_was_killed_holds_nobody_off(self):
        folder = self.top / "c"
        for _ in range(3):
            with Started(folder, "--every", "200") as job:
                self.assertEqual(job.end(signal.SIGKILL)[0], -signal.SIGKILL)
            saved = whole(folder)[-1]
            result = self.result(*ENDLESS, "--steps", saved + 1, "--checkpoints", folder)
            self.assertEqual((result["first_step"], result["steps"]), (saved, saved + 1))

    def test_predictions_are_made_while_a_run_saves(self):
        folder = self.top / "c"
        with Started(folder, "--every", "1000") as job:
            self.good("predict", "--checkpoints", folder)
            self.assertEqual(job.end(signal.SIGTERM)[0], 143)

    def test_who_is_left_says_from_where_it_goes_on(self):
        folder = self.top / "c"
        with Started(folder, "--every", "200", *COLLECTIVE, prefix=mpirun(3) + ["--enable-recovery"]) as job:
            ranks = children(job.job.pid)
            _, said = job.end(signal.SIGKILL, ranks[-1])
        told = [line for line in said.splitlines() if f"rank 2 (pid {ranks[-1]}) died" in line]
        self.assertTrue(told, said)
        for line in told:
            self.assertIn(f"the same command continues from step {whole(folder)[-1]}", line)

    def test_of_a_rank_that_stands_still_the_process_is_named(self):
        folder = self.top / "c"
        with Started(folder, "--every", "200", "--deadline", "2", *COLLECTIVE, prefix=mpirun()) as job:
            late = children(job.job.pid)[-1]
            os.kill(late, signal.SIGSTOP)
            try:
                job.job.wait(PATIENCE)
            finally:
                os.kill(late, signal.SIGKILL)
            job.errors.seek(0)
            said = job.errors.read()
        self.assertRegex(said, rf"rank 1 is missing: .* waited 2 s; rank 1 is pid {late} on host {platform.node()}; "
                               rf"the same command continues from step {whole(folder)[-1]}; arrived: ")

    def test_predictions_are_made_while_a_run_saves_every_few_steps(self):
        folder = self.top / "c"
        with Started(folder, "--every", "2", "--keep", "2") as job:
            for _ in range(10):
                said = self.good("predict", "--checkpoints", folder, "--threads", "1").stderr
                self.assertRegex(said, r"\Astep \d+: accuracy .*\n\Z")   # nothing was damaged, or passed over
            self.assertEqual(job.end(signal.SIGTERM)[0], 143)

    def test_links_are_followed(self):
        there, link = self.top / "there", self.top / "link"
        there.mkdir()
        link.symlink_to(there)
        with Started(link, "--every", "50") as job:
            refused(self, ["train", *SMALL, "--checkpoints", there], 74, [f"{there} is in use"])
            self.assertEqual(job.end(signal.SIGTERM)[0], 143)
        saved = whole(there)[-1]
        newest = there / f"step-{saved:010}"
        newest.rename(self.top / "elsewhere")
        newest.symlink_to(self.top / "elsewhere")
        self.assertIn(f"step {saved}: ", self.good("predict", "--checkpoints", link).stderr)
        result = self.result(*ENDLESS, "--steps", saved + 1, "--checkpoints", link, "--keep", "1")
        self.assertEqual((result["first_step"], whole(there)), (saved, [saved + 1]))
        self.assertTrue((self.top / "elsewhere" / "manifest.json").exists(), "what a link leads to is the user's")
        gone = self.top / "gone"
        gone.symlink_to(self.top / "nowhere")
        refused(self, ["train", *SMALL, "--checkpoints", gone], 74, [f"{gone}: it is a symbolic link to", "not there"])

    def test_checkpoints_by_time(self):
        folder = self.top / "c"
        for every, left in (("1h", [30]), ("0.001s", None)):
            self.result(*ENDLESS, "--steps", "30", "--every", every, "--checkpoints", folder / every)
            steps = whole(folder / every)
            self.assertEqual(steps[-1], 30)
            self.assertTrue(steps == left if left else len(steps) == 3 and any(step % 6 for step in steps), steps)
        file = self.top / "flags.json"
        file.write_text('{"every": 20}')
        self.result(*ENDLESS, "--steps", "30", "--config", file, "--checkpoints", folder / "file")
        self.assertEqual(whole(folder / "file"), [20, 30])
        for wrong in ("0m", "10x", "-1", "m"):
            refused(self, ["train", *SMALL, "--checkpoints", folder, "--every", wrong], 64, ["--every", "10m"])

    def test_a_checkpoint_is_not_taken_for_its_folder(self):
        folder = self.top / "c"
        self.good("train", *SMALL, "--checkpoints", folder)
        checkpoint = next(folder.iterdir())
        for command in (["train", *SMALL], ["predict"]):
            refused(self, [*command, "--checkpoints", checkpoint], 64,
                    ["is a checkpoint", f"name the folder above it: {folder}"])


class Checkpoints(Case):
    def test_a_run_that_is_finished_says_so(self):
        folder = self.top / "c"
        self.good("train", *SMALL, "--checkpoints", folder)
        for epochs, words in (("1", "nothing left to train: the checkpoint is at step 6 of 6"),
                              ("0", "nothing left to train: the checkpoint of step 6 has finished 1 epoch, and 0 were asked for")):
            done = self.good("train", *SMALL, "--epochs", epochs, "--optimizer", "adam", "--checkpoints", folder, "--json")
            self.assertIn(words, done.stderr)
            self.assertNotIn("at zero: the checkpoint has none", done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual((result["loss"], result["examples_per_second"], result["first_step"]), (None, None, 6))
            self.assertIsNotNone(result["test_accuracy"])

    def test_epochs_end_where_they_end_after_a_restart_with_another_batch(self):
        flags = ["train", *SMALL, "--checkpoints", self.top / "c"]
        self.good(*flags, "--epochs", "2")
        said = self.good(*flags, "--epochs", "3", "--batch", "20").stderr
        self.assertIn("continues after step 12 of 27", said)
        self.assertEqual([line.split(":")[0] for line in said.splitlines() if line.startswith("epoch ")], ["epoch 3"])

    def test_a_second_run_goes_on_where_the_first_ended(self):
        folder = self.top / "c"
        flags = [*ENDLESS, "--every", "10", "--checkpoints", folder, "--keep", "2"]
        first = self.result(*flags, "--steps", "30")
        self.assertEqual(first["steps"], 30)
        self.assertNotIn("first_step", first)
        self.assertEqual(whole(folder), [20, 30])
        second = self.result(*flags, "--steps", "40")
        self.assertEqual((second["first_step"], second["steps"]), (30, 40))
        self.assertEqual(whole(folder), [30, 40])

    def test_other_threads_or_instructions_than_the_checkpoints_are_said_in_a_line(self):
        flags = ["train", *ENDLESS, "--eval", "0", "-v", "--checkpoints", self.top / "c"]
        self.good(*flags, "--steps", "1")
        changes = [((), 1, ""), ((), 2, "1 thread a replica, this run has 2 threads a replica:"), ((), 2, "")]
        if platform.machine() == "x86_64":
            changes.append((("env", "ONEDNN_MAX_CPU_ISA=SSE41"), 2, "sse41 (oneDNN "))
        for step, (prefix, threads, words) in enumerate(changes, 2):
            said = self.good(*flags, "--steps", step, "--threads", threads, prefix=prefix).stderr
            lines = [line for line in said.splitlines() if "the checkpoint was written with" in line]
            self.assertEqual(len(lines), 1 if words else 0, said)
            self.assertIn(words, "".join(lines))
            self.assertEqual("so that the bits are the same" in said, not words, said)

    def test_another_label_smoothing_or_batch_norm_is_refused_by_its_name(self):
        folder = self.top / "c"
        self.good("train", *SMALL, "--checkpoints", folder)
        refused(self, ["train", *SMALL, "--epochs", "2", "--label-smoothing", "0.1", "--checkpoints", folder], 64,
                ["label smoothing 0 there, 0.1 here", "or label smoothing 0 (--label-smoothing)"])
        flags = ["train", "--model", "resnet20", "--batch", "4", "--data", "random", "--threads", "1",
                 "--checkpoints", self.top / "norm"]
        self.good(*flags, "--steps", "1")
        refused(self, [*flags, "--steps", "2", "--batch-norm", "synchronised"], 64,
                ["batch norm local there, synchronised here", "or batch norm local (--batch-norm)"])

    def test_of_another_optimizer_no_reason_of_the_last_ones_is_told(self):
        flags = ["train", *ENDLESS, "--replicas", "2", "--eval", "0", "-v", "--checkpoints", self.top / "c"]
        self.assertIn("because lars needs", self.good(*flags, "--steps", "1", "--optimizer", "lars").stderr)
        for steps, same in ((2, False), (3, True)):
            said = self.good(*flags, "--steps", steps, "--optimizer", "sgd").stderr
            self.assertNotIn("lars needs", said)
            self.assertEqual("so that the bits are the same" in said, same, said)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
