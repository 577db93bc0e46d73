#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A supervisor and its task: who is killed, who is started again, and that nobody is left behind.

usage: supervisor_test.py SUPERVISED_PROGRAM
"""
import os
import signal
import subprocess
import sys
import time
import unittest

PROGRAM = sys.argv.pop(1)
PATIENCE = 60  # seconds for anything; only a defect takes so long


def gone(pid):
    """Within the patience; a process that nobody waits for yet is gone, too."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                if file.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    return True
        except OSError:
            return True
        time.sleep(0.005)
    return False


def state(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


class Supervisor(unittest.TestCase):
    def start(self, restarts, part, **environment):
        process = subprocess.Popen([PROGRAM, str(restarts), part], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={**os.environ, **environment})
        self.addCleanup(self.end, process)
        self.assertEqual(process.stdout.readline(), f"supervisor {process.pid}\n")
        return process

    @staticmethod
    def end(process):
        if process.returncode is None:
            process.kill()
            process.communicate(timeout=PATIENCE)

    def task(self, process, number):
        """The process of that start of the task."""
        words = process.stdout.readline().split(maxsplit=3)
        self.assertEqual(words[0::2], ["task", str(number)], process.stderr.read() if not words else "")
        self.assertEqual(words[3], "of the supervisor\n")
        return int(words[1])

    def ended(self, process):
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out.splitlines(), err.splitlines()

    def test_who_is_killed_is_started_again_until_no_restart_is_left(self):
        process = self.start(2, "wait")
        seen = []
        for number in range(3):
            seen.append(self.task(process, number))
            os.kill(seen[-1], signal.SIGKILL)
        code, out, err = self.ended(process)
        self.assertEqual((code, out), (3, []))
        self.assertEqual(len(set(seen)), 3)
        self.assertEqual(len(err), 3, err)
        for number in range(2):
            self.assertIn(f"worker 1 (pid {seen[number]}) was killed by signal 9 (Killed): it is started again, "
                          f"{number + 1} of 2 times", err[number])
        self.assertEqual(err[2], f"error peer lost: worker 1 (pid {seen[2]}) was killed by signal 9 (Killed), and is not "
                         "started again: all 2 restarts are used up")

    def test_a_defect_is_a_death(self):
        process = self.start(1, "abort")
        for number in range(2):
            self.task(process, number)
        code, _, err = self.ended(process)
        self.assertEqual((code, len(err)), (3, 2))
        self.assertIn("signal 6 (Aborted)", err[0])

    def test_without_restarts_one_line_says_so(self):
        process = self.start(0, "abort")
        self.task(process, 0)
        code, _, err = self.ended(process)
        self.assertEqual((code, len(err)), (3, 1))
        self.assertIn("no restart was asked for", err[0])

    def test_who_ends_by_himself_is_not_started_again(self):
        for code in (0, 1, 64, 75):
            process = self.start(5, f"exit:{code}")
            self.task(process, 0)
            self.assertEqual(self.ended(process), (code, [], []))

    def test_signals_go_on_to_the_task(self):
        process = self.start(5, "signals")
        self.task(process, 0)
        for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
            self.assertEqual(process.stdout.readline(), f"signal {int(number)}\n")
        self.assertEqual(self.ended(process), (9, [], []))

    def test_a_signal_that_ends_the_task_ends_the_supervisor(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process = self.start(5, "wait")
            self.task(process, 0)
            process.send_signal(number)
            self.assertEqual(self.ended(process), (128 + number, [], []))

    def test_a_task_that_dies_of_a_signal_that_was_passed_on_is_not_started_again(self):
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU):
            process = self.start(5, "wait")
            self.task(process, 0)
            process.send_signal(number)
            self.assertEqual(self.ended(process), (128 + number, [], []))

    def test_signals_that_are_ignored_stay_ignored(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            process = self.start(1, "wait")
        finally:
            signal.signal(signal.SIGHUP, before)
        seen = self.task(process, 0)
        process.send_signal(signal.SIGHUP)
        os.kill(seen, signal.SIGKILL)   # not by the signal: it is started again
        self.task(process, 1)
        process.terminate()
        self.assertEqual(self.ended(process)[0], 143)

    def test_a_terminals_signal_comes_once(self):
        process = subprocess.Popen([PROGRAM, "5", "signals"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)
        self.addCleanup(self.end, process)
        process.stdout.readline()
        self.task(process, 0)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.stdout.readline(), "signal 2\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(process), (9, ["signal 15"], []))

    def test_the_task_stops_and_goes_on_with_the_supervisor(self):
        process = self.start(5, "wait")
        task = self.task(process, 0)
        process.send_signal(signal.SIGTSTP)
        until = time.monotonic() + PATIENCE
        while "".join(map(state, (task, process.pid))) != "TT" and time.monotonic() < until:
            time.sleep(0.005)
        self.assertEqual((state(task), state(process.pid)), ("T", "T"))
        process.send_signal(signal.SIGCONT)
        while "T" in map(state, (task, process.pid)) and time.monotonic() < until:
            time.sleep(0.005)
        self.assertNotIn("T", (state(task), state(process.pid)))
        process.terminate()
        self.assertEqual(self.ended(process)[0], 143)

    def test_the_task_dies_with_its_supervisor(self):
        process = self.start(5, "wait")
        task = self.task(process, 0)
        process.kill()
        self.assertTrue(gone(task))
        self.assertEqual(self.ended(process), (-9, [], []))

    def test_a_word_that_was_inherited_makes_no_task(self):
        process = self.start(0, "exit:7", LOCKSTEP_SUPERVISED="1:0")
        self.task(process, 0)
        self.assertEqual(self.ended(process)[0], 7)


if __name__ == "__main__":
    # Whoever started this may ignore some (nohup does), and the programs would inherit that.
    for each in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    unittest.main()
