#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/predictions.py, bench/regrets.py and bench/plan_time.py with a program that plays lockstep: what is run on a layout of ranks, what
is made of the rows, layouts that are none.

usage: layouts_test.py BENCH_FOLDER [UNITTEST_ARGUMENT...]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(sys.argv[1])
# Prints the rows that stand beside it; writes down how it was called.
LOCKSTEP = """#!/bin/sh
echo "lockstep $*" >> "$0.calls"
echo "a line for people"
cat "$0.rows"
exit "$(cat "$0.code")"
"""
MPIRUN = """#!/bin/sh
echo "mpirun $*" >> "$CALLS"
while [ "$1" != -n ]; do shift; done
shift 2
exec "$@"
"""
TIMES = [{"algorithm": name, "bytes": size, "in_place_us": us, "predicted_us": 100.0, "barrier_ns": 90.0}
         for size in (256, 512) for name, us in (("direct", 100.0), ("ring", 80.0 * size / 256))]
REGRETS = [{"bytes": size, "algorithm": "ring", "choice_us": 10.0 * regret, "predicted_us": 9.0, "best": "direct",
            "best_us": 10.0, "regret": regret, "wrong": 0} for size, regret in ((256, 1.05), (512, 1.2), (1024, 3.0))]


class Layouts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.lockstep = pathlib.Path(folder.name) / "lockstep"
        self.calls = pathlib.Path(folder.name) / "lockstep.calls"
        mpirun = pathlib.Path(folder.name) / "bin/mpirun"
        mpirun.parent.mkdir()
        for path, text in ((self.lockstep, LOCKSTEP), (mpirun, MPIRUN)):
            path.write_text(text)
            path.chmod(0o755)
        self.environment = {**os.environ, "CALLS": str(self.calls), "PATH": f"{mpirun.parent}:{os.environ['PATH']}"}

    def run_script(self, name, rows, *arguments, code=0):
        pathlib.Path(f"{self.lockstep}.rows").write_text("".join(json.dumps(row) + "\n" for row in rows))
        pathlib.Path(f"{self.lockstep}.code").write_text(str(code))
        return subprocess.run([sys.executable, str(BENCH / name), str(self.lockstep), *arguments], capture_output=True,
                              text=True, timeout=60, env=self.environment)

    def test_a_prediction_off_by_more_than_a_quarter_is_starred(self):
        done = self.run_script("predictions.py", TIMES)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("two ranks meet in 90 ns\n", done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "within a quarter: 3 of 4, 75 %")
        self.assertEqual(done.stdout.count("*"), 1)

    def test_each_layout_of_one_host_is_one_run_of_mpirun(self):
        picture = self.lockstep.with_suffix(".svg")
        done = self.run_script("regrets.py", REGRETS, "--layouts", "1x2,1x3", "--max", "1KiB", "--plot", str(picture))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for layout in ("1x2", "1x3"):
            self.assertIn(f"{layout}: within 10 % at 1 of 3, within 25 % at 2, 3.00 at worst\n", done.stdout)
            self.assertIn(f">{layout}</text>", picture.read_text())
        calls = self.calls.read_text().splitlines()
        self.assertEqual([call.split()[0] for call in calls], ["mpirun", "lockstep"] * 2)
        self.assertIn("-n 2 ", calls[0])
        self.assertIn("-n 3 ", calls[2])
        for word in ("bench --json", "--regret", "--max 1KiB", "--check last"):
            self.assertIn(word, calls[3])

    def test_times_of_measuring_and_planning_are_told_together(self):
        plan = {"calibration_seconds": 0.25, "planning_seconds": 0.125, "table": []}
        done = self.run_script("plan_time.py", [plan], "--layouts", "1x2,1x3", "--rounds", "2")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("1x3: measured in 0.250 s, planned in 0.125 s, together 0.375 s", done.stdout)
        self.assertEqual(json.loads(done.stdout.splitlines()[-1]), {"1x2": 0.375, "1x3": 0.375})
        calls = [call for call in self.calls.read_text().splitlines() if call.startswith("lockstep")]
        self.assertEqual(calls, ["lockstep plan --json --fresh"] * 4)

    def test_hosts_have_as_many_ranks_as_the_layout_says(self):
        sys.path.insert(0, str(BENCH))
        import layouts
        self.assertEqual(layouts.ranks_of("1x4"), [4])
        self.assertEqual(layouts.ranks_of("2x3+1x1"), [3, 3, 1])

    def test_a_layout_that_is_none_is_refused(self):
        for script, flag in (("predictions.py", "--layout"), ("regrets.py", "--layouts"), ("plan_time.py", "--layouts")):
            for text in ("2", "1x0", "axb", "1x2+", "", "-1x2", "1x2,"):
                done = self.run_script(script, [], f"{flag}={text}")
                self.assertEqual((done.returncode, done.stdout), (2, ""), text)
                self.assertIn("must be HOSTSxRANKS, such as 1x2", done.stderr)
        self.assertFalse(self.calls.exists())

    def test_a_run_that_fails_fails_by_its_layout(self):
        for script in ("predictions.py", "regrets.py"):
            done = self.run_script(script, TIMES, "--layouts=1x3" if script == "regrets.py" else "--layout=1x3", code=7)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("1x3: mpirun", done.stderr)
            self.assertIn("ended with 7", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
