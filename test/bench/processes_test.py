#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/peers/processes.py: what several processes print, one that fails, ones that do not end.

usage: processes_test.py BENCH_PEERS [UNITTEST_ARGUMENT...]
"""
import sys
import unittest

sys.path.insert(0, sys.argv[1])
import processes


def shell(*scripts, **environment):
    return [processes.launch(["sh", "-c", script], **environment) for script in scripts]


class Processes(unittest.TestCase):
    def test_each_says_its_own(self):
        printed = processes.outputs(shell("sleep 0.2; echo first", "echo \"$NAME\"", NAME="second"), 60)
        self.assertEqual(printed, ["first\n", "second\n"])

    def test_the_objects_of_an_output_are_its_lines_in_braces(self):
        self.assertEqual(processes.objects("text\n{\"a\": 1}\n [2]\n{\"b\": 3}\n"), [{"a": 1}, {"b": 3}])

    def test_one_that_fails_is_a_failure_with_its_last_lines(self):
        with self.assertRaises(processes.Failed) as failed:
            processes.outputs(shell("echo fine", "for i in 1 2 3 4; do echo line $i >&2; done; exit 3"), 60)
        self.assertEqual(str(failed.exception), "exit code 3: line 2 / line 3 / line 4")

    def test_after_the_time_none_runs_any_more(self):
        processes.PATIENCE = 0.2
        started = shell("exec sleep 1000", "trap '' TERM; while true; do sleep 1; done")
        with self.assertRaises(processes.Failed) as failed:
            processes.outputs(started, 0.3)
        self.assertEqual(str(failed.exception), "not ready after 0.3 s")
        self.assertEqual([process.poll() for process in started], [-15, -9])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
