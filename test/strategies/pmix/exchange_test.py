#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Processes of mpirun that find each other by PMIx, without MPI.

usage: exchange_test.py EXCHANGE_PROGRAM MPIRUN MPIRUN_ARGUMENT...
"""
import os
import subprocess
import sys
import unittest

PROGRAM, MPIRUN = sys.argv[1], sys.argv[2:]
PATIENCE = 120  # seconds for anything; only a defect takes so long


class Exchange(unittest.TestCase):
    def lines(self, part, ranks=3):
        job = subprocess.run([*MPIRUN, "-n", str(ranks), PROGRAM, part], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(job.returncode, 0, job.stdout + job.stderr)
        return sorted(job.stdout.splitlines()), job.stderr

    def test_all_get_the_texts_of_all(self):
        for ranks in (1, 3):
            words, others = (" ".join(f"{name}-{rank}" for rank in range(ranks)) for name in ("words", "others"))
            lines, _ = self.lines("texts", ranks)
            self.assertEqual(lines, sorted([f"rank {r} of {ranks}, {ranks} here: {words}" for r in range(ranks)] +
                                           [f"rank {r} again: {others}" for r in range(ranks)]))

    def test_who_never_comes_is_named_at_the_deadline(self):
        lines, _ = self.lines("missing")
        self.assertEqual(len(lines), 2, lines)
        for rank, line in enumerate(lines):
            self.assertRegex(line, rf"^error timeout: rank {rank} of 3 waited for the words of all ranks; missing: rank 2")

    def test_who_comes_late_is_found_by_who_asks_again(self):
        lines, _ = self.lines("late")
        self.assertEqual(lines[2:], [f"rank {rank}: words-0 words-1 words-2" for rank in range(3)])
        for line in lines[:2]:
            self.assertRegex(line, "missing: rank 2")

    def test_a_task_that_is_started_again_is_told_the_same(self):
        lines, err = self.lines("task")
        self.assertEqual(lines, [f"task {rank} start {start}: words-0 words-1 words-2"
                                 for rank, start in ((0, 0), (1, 0), (1, 1), (2, 0))])
        self.assertIn("was killed by signal 9 (Killed): it is started again, 1 of 2 times", err)

    def test_without_a_launcher_one_line_says_so(self):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PMIX", "OMPI"))}
        done = subprocess.run([PROGRAM, "texts"], capture_output=True, text=True, timeout=PATIENCE, env=clean)
        self.assertEqual(done.returncode, 3)
        self.assertEqual(len(done.stdout.splitlines()), 1)
        self.assertIn("no launcher that speaks PMIx", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
