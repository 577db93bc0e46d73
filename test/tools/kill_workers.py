#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A worker of a parameter server job is killed at a random step, so often; each run ends as accurate as an undisturbed one.

usage: kill_workers.py LOCKSTEP [--rounds N] [--seed N] [--within POINTS] [-- FLAGS OF lockstep train]

Jobs of four workers and two servers under mpirun. One runs undisturbed; then in each round one worker but the chief
gets SIGKILL, at a step drawn from all of them, and is started again. A round passes if the run makes all its steps,
nobody is left behind, and its test accuracy is no more than so many points (0.5) below the undisturbed one.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import program
from kill_tasks import tasks
from program import mpirun

JOB = ["--strategy", "parameter_server", "--servers", "2", "--json"]
DEFAULT = ["--model", "mnist_cnn", "--threads", "1", "--examples", "4000", "--epochs", "3", "--batch", "64"]
PATIENCE = 600  # seconds for a run


class Run:
    def __init__(self, flags, top):
        self.job = f"{os.getpid()}-{random.random()}"
        self.log = top / f"{self.job}.log"
        prefix = mpirun(6)
        self.running = subprocess.Popen(
            [prefix[0], "--enable-recovery", *prefix[1:], program.LOCKSTEP, "train", *JOB, *flags, "--log", self.log],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, KILL_TASKS_JOB=self.job))

    def step(self):
        """The last one that the chief reported of itself; -1: none yet."""
        last = -1
        if self.log.exists():
            for line in self.log.read_text().splitlines()[-3:]:
                try:
                    last = json.loads(line).get("step", last)
                except ValueError:
                    pass  # half a line
        return last

    def kill(self, number, at_step):
        """Kills that worker behind the chief; its name and the step, or nothing where the run was over before."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.running.poll() is None:
            if self.step() >= at_step:
                there = tasks(self.job)
                names = sorted(name for name in there if name.startswith(("chief", "worker")))
                if number < len(names):
                    os.kill(there[names[number]], signal.SIGKILL)
                    return f"{names[number]} at step {self.step()}"
            time.sleep(0.02)
        return None

    def result(self):
        """What it printed, or why it is wrong."""
        try:
            out, err = self.running.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return None, f"not ready after {PATIENCE} s"
        finally:
            left = tasks(self.job)
            if self.running.poll() is None:
                self.running.terminate()
            for pid in left.values():
                os.kill(pid, signal.SIGKILL)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if self.running.returncode != 0 or len(lines) != 1:
            return None, f"exit code {self.running.returncode}: " + " / ".join(err.strip().splitlines()[-3:])
        if left:
            return None, f"left behind: {', '.join(left)}"
        return json.loads(lines[0]), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lockstep")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=0.5)
    own, flags = sys.argv[1:], DEFAULT
    if "--" in own:
        at = own.index("--")
        own, flags = own[:at], own[at + 1:]
    options = parser.parse_args(own)
    program.LOCKSTEP = options.lockstep
    drawn = random.Random(options.seed)
    bad = 0
    with tempfile.TemporaryDirectory() as top:
        top = pathlib.Path(top)
        whole, why = Run(flags, top).result()
        if whole is None:
            sys.exit(f"undisturbed: {why}")
        steps, aim = whole["steps"], whole["test_accuracy"]
        print(f"undisturbed: {steps} steps, accuracy {aim:.4f}", flush=True)
        for number in range(options.rounds):
            worker, step = drawn.randint(1, 3), drawn.randrange(steps * 19 // 20)
            run = Run(flags, top)
            killed = run.kill(worker, step)
            result, why = run.result()
            if not why and killed is None:
                why = "nobody was killed"
            if not why and result["steps"] != steps:
                why = f"{result['steps']} steps were made"
            if not why and result["test_accuracy"] < aim - options.within / 100:
                why = "less accurate"
            bad += bool(why)
            print(f"{number + 1}: {killed}" +
                  (f", accuracy {result['test_accuracy']:.4f}" if result else "") +
                  (f": FAILED: {why}" if why else ""), flush=True)
    print(f"{options.rounds - bad} of {options.rounds} ended within {options.within} points")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
