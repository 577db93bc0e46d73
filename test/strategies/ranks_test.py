#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The lower layer between processes: exact sums, and what ranks are told when one of them differs or is gone.

usage: ranks_test.py RANKS_PROGRAM MPIRUN MPIRUN_ARGUMENT...
"""
import subprocess
import sys
import time
import unittest

PROGRAM, MPIRUN = sys.argv[1], sys.argv[2:]


def job(ranks, part, *options):
    return subprocess.run([*MPIRUN, *options, "-n", str(ranks), PROGRAM, part], capture_output=True, text=True,
                          timeout=60)


class Ranks(unittest.TestCase):
    def test_sums_are_exact_on_two_to_four_processes(self):
        for ranks in (2, 3, 4):
            done = job(ranks, "sums")
            self.assertEqual(done.returncode, 0, f"{ranks} ranks: {done.stdout}{done.stderr}")

    def test_another_count_is_an_error_at_the_call_on_all_ranks(self):
        done = job(2, "differ")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertIn("invalid", line)
            self.assertIn("rank 0 for all_reduce of 10 float32 (sum), rank 1 for all_reduce of 7 float32 (sum)", line)

    def test_a_rank_that_dies_is_named_at_once(self):
        begin = time.monotonic()
        done = job(3, "die", "--enable-recovery")
        self.assertLess(time.monotonic() - begin, 30)  # the deadline of a wait is 60 s
        lines = [line for line in done.stdout.splitlines() if line.startswith("error")]
        self.assertEqual(len(lines), 2, done.stdout + done.stderr)
        for line in lines:
            self.assertRegex(line, r"error peer.lost: rank 1 \(process \d+\) died")

    def test_a_rank_that_stops_calling_is_named_within_the_deadline(self):
        done = job(3, "stop", "--enable-recovery")
        lines = [line for line in done.stdout.splitlines() if line.startswith("error")]
        self.assertEqual(len(lines), 2, done.stdout + done.stderr)
        for line in lines:
            self.assertRegex(line, "error timeout: all_reduce: .*missing: 1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
