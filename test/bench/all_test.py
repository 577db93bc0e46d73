#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/all: what is lost, gained, and stored, with commands that print chosen figures.

usage: all_test.py BENCH_ALL FIGURES_JSON [UNITTEST_ARGUMENT...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ALL, OURS = sys.argv[1], pathlib.Path(sys.argv[2])
ROOT = OURS.parent.parent


class All(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.figures = pathlib.Path(self.folder.name) / "figures.json"

    def write(self, now, machine="", **figure):
        """One figure, that the command says to be `now`."""
        self.document = {"machine": machine, "tolerance": 0.05,
                         "runs": {"one": {"command": ["echo", json.dumps({"a": [{"name": "b", "c": now}]})]},
                                  "big": {"command": ["false"], "peers": True}},
                         "figures": [{"name": "f", "run": "one", "path": ["a", "b", "c"], "kind": "ratio", **figure},
                                     {"name": "peer", "run": "big", "path": ["x"], "kind": "ratio", "stored": 1}]}
        self.figures.write_text(json.dumps(self.document))

    def run_all(self, *arguments):
        done = subprocess.run([ALL, "--figures", str(self.figures), *arguments], capture_output=True, text=True,
                              timeout=60)
        lines = [line for line in done.stdout.splitlines() if line.startswith("f ")]
        return done.returncode, lines[0].split()[-1] if lines else done.stdout + done.stderr

    def test_more_than_the_tolerance_below_is_lost_and_above_is_gained(self):
        for now, code, word in ((1.0, 0, "ok"), (0.96, 0, "ok"), (1.04, 0, "ok"), (0.94, 1, "lost"), (1.06, 0, "gained")):
            self.write(now, stored=1.0)
            self.assertEqual(self.run_all(), (code, word), now)

    def test_where_less_is_better_more_is_lost(self):
        self.write(1.2, stored=1.0, better="less")
        self.assertEqual(self.run_all(), (1, "lost"))

    def test_what_is_worse_than_wanted_is_missed_whatever_was_stored(self):
        for now, stored, better, answer in ((0.7, 0.7, "more", (1, "missed")), (0.8, 0.8, "more", (0, "ok")),
                                            (0.8, 0.8, "less", (1, "missed")), (0.7, 0.7, "less", (0, "ok"))):
            self.write(now, stored=stored, better=better, wanted=0.75)
            self.assertEqual(self.run_all(), answer)

    def test_more_is_wanted_where_ranks_have_real_cores_of_their_own(self):
        for met, answer in ((100, (0, "ok")), (400, (1, "missed")), (0, (0, "ok")), (None, (0, "ok"))):
            self.write(0.7, stored=0.7, wanted=0.6, wanted_apart=0.8)
            self.document["runs"]["one"]["command"][1] = json.dumps({"a": [{"name": "b", "c": 0.7}], "barrier_ns": met})
            self.figures.write_text(json.dumps(self.document))
            self.assertEqual(self.run_all(), answer, met)

    def test_a_value_counts_only_on_its_own_machine(self):
        self.write(0.5, stored=1.0, kind="value", machine="a machine that this is not")
        self.assertEqual(self.run_all()[0], 0)
        self.assertIn("other machine", subprocess.run([ALL, "--figures", str(self.figures)], capture_output=True,
                                                      text=True, timeout=60).stdout)

    def test_what_is_stored_is_compared_next_time(self):
        self.write(2.0)
        self.assertEqual(self.run_all("--store")[0], 0)
        self.assertEqual(json.loads(self.figures.read_text())["figures"][0]["stored"], 2.0)
        self.assertEqual(json.loads(self.figures.read_text())["figures"][1]["stored"], 1)  # not measured: kept
        self.assertEqual(self.run_all(), (0, "ok"))

    def test_without_store_nothing_is_written(self):
        self.write(2.0, stored=1.0)
        self.run_all()
        self.assertEqual(json.loads(self.figures.read_text()), self.document)

    def test_a_command_that_fails_fails(self):
        self.write(1.0, stored=1.0)
        code, _ = self.run_all("--peers")
        self.assertEqual(code, 1)

    def test_a_figure_that_is_not_printed_fails(self):
        self.write(1.0, stored=1.0, path=["a", "d"])
        self.assertEqual(self.run_all()[0], 1)

    def test_a_bad_file_is_one_line_and_code_2(self):
        for text in ("{", json.dumps({"runs": {}, "figures": [{"name": "f", "kind": "length", "run": "one"}]})):
            self.figures.write_text(text)
            done = subprocess.run([ALL, "--figures", str(self.figures)], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (2, "", 1), done.stderr)

    def test_our_own_figures_name_programs_that_are_there(self):
        document = json.loads(OURS.read_text())
        names = [figure["name"] for figure in document["figures"]]
        self.assertEqual(len(names), len(set(names)))
        for figure in document["figures"]:
            program = next(word for word in document["runs"][figure["run"]]["command"] if "/" in word)
            source = program.replace("{build}/bench/bench_", "bench/") + (".cpp" if "{build}" in program else "")
            source = source.replace("{build}/tools/lockstep", "tools/main")
            self.assertTrue((ROOT / source).exists(), program)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
