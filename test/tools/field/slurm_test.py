#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Jobs under Slurm itself: steps by PMIx, by PMI2 and by Slurm's variables alone, pre-emption, and the time limit.

usage: slurm_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import program  # noqa: E402
import slurm_cluster  # noqa: E402

SECRET = "0123456789abcdef0123456789abcdef"
SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "tools/slurm.sbatch"
# One algorithm and one thread everywhere, so that the bits do not depend on where ranks are.
TRAIN = ["train", "--model", "mlp", "--examples", "300", "--batch", "50", "--threads", "1", "--algorithm", "ring",
         "--update", "fused", "--eval", "0"]
DIGITS = ["train", "--model", "mnist_cnn", "--examples", "3000", "--epochs", "2", "--batch", "64", "--threads", "1",
          "--algorithm", "ring", "--update", "fused"]


def bits(folder):
    """The weights of the newest checkpoint, whatever their shards are."""
    newest = sorted(pathlib.Path(folder).glob("step-*"))[-1]
    manifest = json.loads((newest / "manifest.json").read_text())
    found = {}
    for array in manifest["arrays"]:
        whole = b""
        for piece in array["pieces"]:
            file = (newest / piece["file"]).read_bytes()
            size = int.from_bytes(file[:8], "little")
            begin, end = json.loads(file[8:8 + size])[piece["key"]]["data_offsets"]
            whole += file[8 + size + begin:8 + size + end]
        found[array["name"]] = whole
    return found


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        lacks = slurm_cluster.missing()
        if lacks:
            raise unittest.SkipTest(f"Slurm cannot run here, since there is no {lacks}")
        # Below the folder that the nodes share with this machine.
        cls.cluster = slurm_cluster.SlurmCluster().__enter__()
        cls.addClassCleanup(cls.cluster.__exit__)
        cls.top = cls.cluster.base / "shared"
        cls.top.mkdir()
        cls.variables = {"LOCKSTEP_SECRET": SECRET, "XDG_CACHE_HOME": str(cls.top / "cache"), "HOME": str(cls.top),
                         "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}

    def step(self, mpi, tasks, flags):
        begin = time.monotonic()
        done = self.cluster.run("srun", f"--mpi={mpi}", f"-N{min(tasks, 4)}", f"-n{tasks}", program.LOCKSTEP, *flags,
                                **self.variables)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done, time.monotonic() - begin

    def by_mpirun(self, tasks, flags):
        begin = time.monotonic()
        done = program.run(*flags, prefix=program.mpirun(tasks))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done, time.monotonic() - begin

    def test_steps_train_as_under_mpirun(self):
        version = self.cluster.run("srun", "--version").stdout.strip()
        for tasks in (1, 2, 4):
            flags = [*DIGITS, "--json"]
            done, alone = self.by_mpirun(tasks, flags)
            wanted = json.loads(done.stdout)
            for mpi in ("none", "pmi2", "pmix"):
                with self.subTest(mpi=mpi, tasks=tasks):
                    done, took = self.step(mpi, tasks, flags)
                    found = json.loads(done.stdout)
                    self.assertEqual(found["replicas"], tasks)
                    self.assertEqual([found[key] for key in ("loss", "test_loss", "test_accuracy")],
                                     [wanted[key] for key in ("loss", "test_loss", "test_accuracy")])
                    print(f"{version}, --mpi={mpi}, {tasks} tasks: accuracy {found['test_accuracy']:.4f}, losses as "
                          f"under mpirun to all digits; {took:.1f} s, under mpirun {alone:.1f} s", flush=True)

    def test_a_task_that_is_killed_is_named_and_the_step_ends(self):
        job = subprocess.Popen(["srun", "--mpi=none", "-N3", "-n3", program.LOCKSTEP, *TRAIN, "--steps", "1000000",
                                "--checkpoints", str(self.top / "killed"), "--every", "50"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**self.cluster.environment, **self.variables})
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        self.wait_for(lambda: program.whole(self.top / "killed"), "it saves nothing; ", 60)
        victims = subprocess.run(["ip", "netns", "pids", self.cluster.node(2)], capture_output=True, text=True, check=True).stdout
        begin = time.monotonic()
        for pid in victims.split():
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "lockstep":
                os.kill(int(pid), 9)
        _, errors = job.communicate(timeout=60)
        took = time.monotonic() - begin
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(errors, r"rank 1 .*(died|lost|gone|closed)")
        self.assertLess(took, 10)
        print(f"killed: {took:.1f} s", flush=True)

    def submit(self, *words, output="out.txt"):
        done = self.cluster.run("sbatch", "--parsable", "--chdir", str(self.top), "--output", str(self.top / output), *words,
                                **self.variables, LOCKSTEP=program.LOCKSTEP)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def state(self, job):
        return self.cluster.run("squeue", "-h", "-j", job, "-o", "%T").stdout.strip()

    def text(self):
        """What the batch job has printed."""
        file = self.top / "out.txt"
        return file.read_text() if file.exists() else ""

    def wait_for(self, condition, what, seconds):
        end = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), end, what + self.text()[-3000:])
            time.sleep(0.2)

    def undisturbed(self, tasks, name, *flags):
        folder = self.top / name
        self.step("none", tasks, [*TRAIN, *flags, "--checkpoints", str(folder)])
        return bits(folder)

    def test_a_job_that_is_pre_empted_twice_ends_with_the_bits_of_an_undisturbed_run(self):
        flags = ["--steps", "3000", "--every", "300"]
        wanted = self.undisturbed(4, "undisturbed", *flags)
        job = self.submit("--nodes=4", "--partition=low", "--job-name=preempted", str(SCRIPT), *TRAIN[1:], *flags)
        folder = self.top / "runs/preempted"
        for round in range(2):
            saved = len(program.whole(folder)) and program.whole(folder)[-1]
            self.wait_for(lambda: program.whole(folder) and program.whole(folder)[-1] > saved, "it saves nothing; ", 300)
            other = self.submit("--nodes=4", "--partition=high", "--exclusive", "--job-name=urgent", "--wrap", "sleep 3",
                                output="urgent.txt")
            self.wait_for(lambda: self.state(other) != "PENDING", "it is not pre-empted; ", 60)
            print(f"pre-empted after step {program.whole(folder)[-1]}", flush=True)
        self.wait_for(lambda: self.state(job) == "", "it does not end; ", 400)
        text = self.text()
        self.assertEqual(text.count("stopped by SIGTERM"), 2, text)
        self.assertEqual(bits(folder), wanted)

    def test_before_its_time_limit_a_job_saves_and_asks_for_another_start(self):
        flags = ["--steps", "30000", "--every", "100000"]
        job = self.submit("--nodes=2", "--job-name=limited", "--time=2", str(SCRIPT), *TRAIN[1:], *flags)
        folder = self.top / "runs/limited"
        self.wait_for(lambda: program.whole(folder) or self.state(job) == "", "nothing was saved; ", 200)
        if program.whole(folder)[-1] == 30000:
            self.skipTest("the job ended before its limit")
        self.wait_for(lambda: "PENDING" in self.state(job) or "RUNNING" in self.state(job), "it was not requeued; ", 30)
        self.assertIn("stopped by SIGUSR1", self.text())
        self.cluster.run("scancel", job)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
