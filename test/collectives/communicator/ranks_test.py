#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The lower layer between processes: exact sums, and what ranks are told when one of them differs or is gone.

usage: ranks_test.py RANKS_PROGRAM MPIRUN MPIRUN_ARGUMENT...
       ranks_test.py RANKS_PROGRAM CLUSTER_SCRIPT: kills ranks of virtual hosts alone
"""
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

PROGRAM, MPIRUN = sys.argv[1], sys.argv[2:]
CLUSTER = MPIRUN[0] if MPIRUN[0].endswith(".sh") else None
# Says how the program under it ended.
WITNESS = ["sh", "-c", '"$@"; echo "exit $?"', "sh"]


def job(ranks, part, *options):
    return subprocess.run([*MPIRUN, *options, "-n", str(ranks), PROGRAM, part], capture_output=True, text=True,
                          timeout=60)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Killed(unittest.TestCase):
    """A process that is killed in the middle of large sums."""

    def kill_one(self, command, ranks):
        """Every other rank says which sum it was, of how many bytes, and who is missing, and is gone in 2 s."""
        with subprocess.Popen([*command, *WITNESS, PROGRAM, "large"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) as job:
            try:
                pids, said = {}, []
                while len(pids) < ranks:
                    said.append(job.stdout.readline())
                    if not said[-1] and job.wait() == 77:
                        self.skipTest("no virtual hosts here: " + "".join(said))
                    self.assertTrue(said[-1], "".join(said))
                    found = re.match(r"rank (\d+) pid (\d+)", said[-1])
                    if found:
                        pids[int(found[1])] = int(found[2])
                time.sleep(random.uniform(0.05, 0.5))
                os.kill(pids[1], signal.SIGKILL)
                killed = time.monotonic()
                while any(map(alive, pids.values())) and time.monotonic() - killed < 20:
                    time.sleep(0.005)
                took = time.monotonic() - killed
                # What they said, which mpirun passes on.
                alarm = threading.Timer(20, job.terminate)
                alarm.start()
                while sum(line.startswith("exit") for line in said) < ranks and (line := job.stdout.readline()):
                    said.append(line)
                alarm.cancel()
            finally:
                job.terminate()  # between hosts Open MPI 4.1 itself does not end after a death
            said += job.stdout.readlines()
        text = "".join(said)
        self.assertLess(took, 2, text)
        self.assertEqual(sorted(line for line in said if line.startswith("exit")),
                         ["exit 137\n"] + ["exit 3\n"] * (ranks - 1), text)
        errors = [line for line in said if line.startswith("error")]
        self.assertEqual(len(errors), ranks - 1, text)
        for line in errors:
            self.assertRegex(line, r"error peer.lost: rank 1\b.*(died|gone)")
            self.assertRegex(line, r"all_reduce of 16777216 float32 \(mean, in allocated memory 1\), 67108864 bytes")
            self.assertRegex(line, r"; arrived: ranks? [0-9 ]+; missing: .*")

    @unittest.skipIf(CLUSTER, "is about one host")
    def test_the_others_of_a_host_are_told(self):
        for ranks in (2, 3):
            self.kill_one([*MPIRUN, "--enable-recovery", "-n", str(ranks)], ranks)

    @unittest.skipUnless(CLUSTER, "needs virtual hosts")
    def test_the_others_on_other_hosts_are_told(self):
        for transport in (["--hosts", "3"], ["--hosts", "2", "--ranks-per-host", "2"]):
            ranks = 3 if transport[1] == "3" else 4
            self.kill_one([CLUSTER, *transport, "--mpirun", "--enable-recovery", "--"], ranks)

    @unittest.skipUnless(CLUSTER, "needs virtual hosts")
    def test_a_death_in_calibration_is_told_on_other_hosts(self):
        for where in ("calibrate", "exchange"):  # in a probe within its host, and behind it
            command = [CLUSTER, "--hosts", "2", "--ranks-per-host", "2", "--mpirun", "--enable-recovery", "--",
                       PROGRAM, where]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as job:
                # The deadline of a wait is 60 s.
                alarm = threading.Timer(30, job.terminate)
                alarm.start()
                said = []
                while sum(line.startswith("error") for line in said) < 3:
                    said.append(job.stdout.readline())
                    if not said[-1]:
                        break
                alarm.cancel()
                job.terminate()  # between hosts Open MPI 4.1 itself does not end after a death
                said += job.stdout.readlines()
                if job.wait() == 77:
                    self.skipTest("no virtual hosts here: " + "".join(said))
            errors = [line for line in said if line.startswith("error")]
            self.assertEqual(len(errors), 3, where + "".join(said))
            for line in errors:
                # Heard in a probe, or where the ranks wait for its times.
                self.assertRegex(line, r"error peer.lost: .*rank 1\b.*(died|gone)")
                self.assertIn("calibration", line)
                if "; missing: " in line:
                    self.assertRegex(line, r"; missing: rank 1$")


@unittest.skipIf(CLUSTER, "is about one host")
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
            self.assertRegex(line, r"error peer.lost: rank 1 \(pid \d+\) died")

    def test_a_rank_that_dies_in_calibration_is_named_at_once(self):
        for where in ("calibrate", "exchange"):  # in a probe, and where the others wait for its times
            begin = time.monotonic()
            done = job(3, where, "--enable-recovery")
            self.assertLess(time.monotonic() - begin, 30)  # the deadline of a wait is 60 s
            lines = [line for line in done.stdout.splitlines() if line.startswith("error")]
            self.assertEqual(len(lines), 2, where + done.stdout + done.stderr)
            for line in lines:
                # Who waits for a probe's plan says that, too; where all wait for times, nobody does.
                self.assertRegex(line, r"^error peer.lost: calibration: rank 1 \(pid \d+\) died while costs were measured"
                                       r"(; rank [02] waits for [^;]*; arrived: ranks? (0|2|0 2); missing: rank 1)?$")

    def test_a_death_while_something_is_made_or_summed_is_named_at_once_and_the_session_ends(self):
        for part in ("communicator", "allocate", "buckets", "sum"):
            begin = time.monotonic()
            done = job(3, part, "--enable-recovery")
            self.assertLess(time.monotonic() - begin, 30, part)  # the deadline of a wait is 60 s
            lines = done.stdout.splitlines()
            self.assertEqual(lines.count("ended"), 2, part + done.stdout + done.stderr)
            errors = [line for line in lines if line.startswith("error")]
            self.assertEqual(len(errors), 2, part + done.stdout + done.stderr)
            for line in errors:
                self.assertRegex(line, r"error peer.lost: rank 1 \(pid \d+\) died")

    def test_a_rank_that_stops_calling_is_named_within_the_deadline(self):
        done = job(3, "stop", "--enable-recovery")
        lines = [line for line in done.stdout.splitlines() if line.startswith("error")]
        self.assertEqual(len(lines), 2, done.stdout + done.stderr)
        for line in lines:
            self.assertRegex(line, r"error timeout: rank 1 is missing: all_reduce of 10 float32 \(sum\), 40 bytes: ")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
