#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kills one rank of `lockstep bench` in the middle of all-reduces: every other rank must be gone within LIMIT
seconds, with a non-zero code and a line that names the rank that died, the collective and its bytes. And stops one
for good (SIGSTOP): one of the others must say at the deadline for whom they waited.

usage: kill_bench.py LOCKSTEP [--size SIZE] [--kills N] [--ranks N] [--seed S]
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import kill_ranks

LIMIT = 2.0       # seconds from the kill until no rank is left
DEADLINE = 3      # seconds that ranks wait for one that never comes
PATIENCE = 120


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


def shared_memory(pid):
    """Bytes that a process has in memory that it shares."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return int(re.search(r"RssShmem:\s*(\d+) kB", text)[1]) << 10 if "RssShmem" in text else 0


class Job:
    """Ranks that reduce the same bytes over and over, for longer than the test lasts."""

    def __init__(self, options, deadline):
        self.errors, self.out = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            ["mpirun", *root, "--enable-recovery", "--oversubscribe", "--bind-to", "none", "-n", str(options.ranks),
             "sh", "-c", '"$@"; echo "rank $OMPI_COMM_WORLD_RANK ended with $?" >&2', "sh",
             options.lockstep, "bench", "--min", options.size, "--max", options.size, "--iterations", "50000",
             "--check", "none", "--assumed", "--deadline", str(deadline)],
            stdout=self.out, stderr=self.errors)
        begin = time.monotonic()
        # The heading is printed when the ranks have met.
        while os.fstat(self.out.fileno()).st_size == 0:
            if self.process.poll() is not None or time.monotonic() - begin > PATIENCE:
                raise SystemExit(f"the job did not start:\n{self.text()}")
            time.sleep(0.01)
        name = pathlib.Path(options.lockstep).name
        self.pids = {kill_ranks.rank_of(pid): pid for pid in kill_ranks.children(self.process.pid)
                     if name_of(pid) == name}

    def text(self):
        self.errors.seek(0)
        return self.errors.read()

    def await_sums(self, size):
        """Waits until each rank has read what others have: its own input and result take `size` bytes each, so with
        more than both the first sum has begun."""
        begin = time.monotonic()
        while any(shared_memory(pid) < 2.25 * size for pid in self.pids.values()):
            if not all(map(kill_ranks.alive, self.pids.values())) or time.monotonic() - begin > PATIENCE:
                raise SystemExit(f"no sums began:\n{self.text()}")
            time.sleep(0.005)

    def others_gone(self, victim, most):
        """Seconds until no other rank is left."""
        others = [pid for rank, pid in self.pids.items() if rank not in (None, victim)]
        begin = time.monotonic()
        while any(kill_ranks.alive(pid) for pid in others) and time.monotonic() - begin < most:
            time.sleep(0.005)
        return time.monotonic() - begin

    def end(self):
        """Whether each rank ended with a code that is not 0."""
        for pid in self.pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(PATIENCE)
        codes = re.findall(r"rank \d+ ended with (\d+)", self.text())
        return len(codes) == len(self.pids) and "0" not in codes


def bytes_of(size):
    return int(size[:-3]) << {"KiB": 10, "MiB": 20}[size[-3:]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep")
    parser.add_argument("--size", default="8MiB")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("skipped: mpirun is not installed")
        return 77
    print(f"seed {options.seed}")
    draw = random.Random(options.seed)
    size = bytes_of(options.size)
    what = rf"(?:benchmark|all_reduce of)[^\n]*\b{options.size[:-3]} {options.size[-3:]}\b"
    bad = 0
    for number in range(options.kills):
        victim = draw.randrange(options.ranks)
        job = Job(options, 60)
        job.await_sums(size)
        time.sleep(draw.uniform(0, 1.2))
        os.kill(job.pids[victim], signal.SIGKILL)
        took = job.others_gone(victim, 20)
        failed, text = job.end(), job.text()
        said = re.findall(rf"rank {victim} \(pid \d+\) died[^\n]*{what}", text)
        print(f"kill {number + 1}: rank {victim}, the others were gone after {took:.2f} s: {said[0] if said else '-'}")
        if took > LIMIT or not failed or not said:
            bad += 1
            print(f"  FAILED: at most {LIMIT} s, codes that are not 0, and that line:\n{text}")
    victim = draw.randrange(options.ranks)
    job = Job(options, DEADLINE)
    job.await_sums(size)
    os.kill(job.pids[victim], signal.SIGSTOP)
    took = job.others_gone(victim, DEADLINE + 20)
    failed, text = job.end(), job.text()
    said = re.findall(rf"[^\n]*rank {victim} is missing: [^\n]*", text)
    reports = [line for line in text.splitlines() if "lockstep: " in line and "ranks share" not in line]
    print(f"stopped: rank {victim}, the others were gone after {took:.2f} s: {said[0] if said else '-'}")
    if not DEADLINE - 0.5 <= took <= DEADLINE + LIMIT or not failed or len(said) != 1 or reports != said:
        bad += 1
        print(f"  FAILED: {DEADLINE} to {DEADLINE + LIMIT} s, codes that are not 0, and that line once:\n{text}")
    print(f"{options.kills} kills and a stop, {bad} failures")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
