#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tasks of a parameter server job that mpirun starts, each under a supervisor.

usage: launched_test.py LAUNCHED_PROGRAM MPIRUN MPIRUN_ARGUMENT...
"""
import os
import re
import subprocess
import sys
import unittest

PROGRAM, MPIRUN = sys.argv[1], sys.argv[2:]
PATIENCE = 120  # seconds for anything; only a defect takes so long


def alive():
    """Processes of the program, by what their files say."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/exe") == os.path.realpath(PROGRAM):
                found.append(int(pid))
        except OSError:
            pass
    return found


class Launched(unittest.TestCase):
    def job(self, part):
        done = subprocess.run([*MPIRUN, "-n", "4", PROGRAM, part], capture_output=True, text=True, timeout=PATIENCE,
                              env={name: value for name, value in os.environ.items() if name != "TF_CONFIG"})
        self.assertEqual(alive(), [], "somebody was left behind")
        return done

    def test_each_task_has_its_place_and_servers_come_back_to_theirs(self):
        done = self.job("job")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        starts, back, hashes = {}, [], set()
        for line in done.stdout.splitlines():
            found = re.fullmatch(r"(\S+) start (\d) at (127\.0\.0\.1:\d+) in (\w+)", line)
            if found:
                starts.setdefault(found[1], []).append((int(found[2]), found[3]))
                hashes.add(found[4])
            else:
                back.append(line)
        self.assertEqual(len(hashes), 1, done.stdout)
        self.assertEqual({name: [start for start, _ in seen] for name, seen in starts.items()},
                         {"/job:worker/task:0": [0], "/job:worker/task:1": [0], "/job:ps/task:0": [0, 1], "/job:ps/task:1": [0, 1]})
        for name in ("/job:ps/task:0", "/job:ps/task:1"):
            self.assertEqual(len({address for _, address in starts[name]}), 1)
            self.assertIn(f"{starts[name][0][1]} came back with 2", back)
            self.assertRegex(done.stderr, re.escape(name) + r" \(pid \d+\) was killed by signal 9 \(Killed\): it is "
                             r"started again, 1 of 3 times")
        self.assertEqual(len(back), 2, back)

    def test_the_chief_is_not_started_again_and_nobody_stays(self):
        done = self.job("chief")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout.count("/job:worker/task:0 start"), 1)
        self.assertRegex(done.stdout, r"failed: /job:worker/task:0 \(pid \d+\) was killed by signal 9 \(Killed\), and is not "
                         "started again")

    def test_the_code_of_a_job_is_that_of_the_chief_who_failed(self):
        done = self.job("cause")
        self.assertEqual(done.returncode, 5, done.stdout + done.stderr)

    def test_servers_that_leave_nobody_to_train_are_refused(self):
        done = self.job("servers")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("beside 4 servers of 4 ranks none is left to train", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
