#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/count_tests.py on logs of the form that `meson test` writes (Meson 1.0.1, GoogleTest 1.12).

usage: count_tests_test.py COUNT_TESTS_PY
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COUNT = sys.argv[1]

PASSES = '<testcase name="Passes" status="run" time="0" classname="A" />'
DISABLED = '<testcase name="DISABLED_Off" status="notrun" time="0" classname="A" />'
SKIPS = ('<testcase name="Skips" status="run" time="0" classname="A">'
         '<skipped message="../t.cpp:6&#10;no GPU here&#10;at all">../t.cpp:6</skipped></testcase>')
FAILS = ('<testcase name="Fails" status="run" time="0" classname="A">'
         '<failure message="../t.cpp:8&#10;Value of: x&#10;  Actual: 2" type="">..</failure>'
         '<failure message="../t.cpp:9&#10;again" type="">..</failure></testcase>')


class CountTests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.base = pathlib.Path(folder.name)
        self.folder = self.base / "build"

    def write(self, *programs, folder=None):
        """A program is (name, result, status, output, cases); without cases (None) it has no report."""
        logs = (folder or self.folder) / "meson-logs"
        logs.mkdir(parents=True)
        lines, suites = [], []
        for name, result, status, output, cases in programs:
            full = f"lockstep:unit / {name}"
            lines.append(json.dumps({"name": full, "stdout": output, "result": result, "returncode": status}))
            if cases is not None:
                suites.append(f'<testsuite name="lockstep.{full}.A">{"".join(cases)}</testsuite>')
        (logs / "testlog.json").write_text("\n".join(lines) + "\n" if lines else "")
        (logs / "testlog.junit.xml").write_text(f"<testsuites>{''.join(suites)}</testsuites>")

    def count(self, *arguments):
        result = subprocess.run([sys.executable, COUNT, *(arguments or [str(self.folder)])], text=True,
                                capture_output=True, check=False)
        return result.returncode, result.stdout.splitlines()

    def expect(self, passed, failed, skipped, *arguments):
        code, lines = self.count(*arguments)
        self.assertEqual(lines[-1], f"{passed} passed, {failed} failed, {skipped} skipped", lines)
        self.assertEqual(code, 1 if failed or not passed else 0)
        self.assertEqual(sum(line.startswith("FAILED ") for line in lines), failed)
        self.assertEqual(sum(line.startswith("skipped ") for line in lines), skipped)
        return "\n".join(lines)

    def test_cases_are_counted_and_programs_without_cases_are_one_each(self):
        self.write(("nn", "OK", 0, "", [PASSES, PASSES, PASSES]), ("form", "OK", 0, "", None))
        self.expect(4, 0, 0)

    def test_a_skip_shows_its_reason(self):
        self.write(("nn", "OK", 0, "", [PASSES, SKIPS, DISABLED]),
                   ("wire", "SKIP", 77, "begin\nneeds root\n\n", None))
        text = self.expect(1, 0, 3)
        self.assertIn("nn: A.Skips: no GPU here at all\n", text)
        self.assertIn("nn: A.DISABLED_Off: disabled\n", text)
        self.assertIn("wire: needs root\n", text)

    def test_a_failing_case_is_one_failure_with_name_and_log(self):
        self.write(("nn", "FAIL", 1, "", [PASSES, FAILS]), ("form", "FAIL", 1, "", None))
        text = self.expect(1, 2, 0)
        self.assertIn("nn: A.Fails: Value of: x Actual: 2 (log: ", text)
        self.assertIn("form: fail, exit status 1 (log: ", text)
        self.assertIn("meson-logs/testlog.txt", text)

    def test_a_program_that_fails_after_its_cases_passed_is_a_failure(self):
        self.write(("nn", "FAIL", 23, "", [PASSES, PASSES]))
        self.assertIn("exit status 23", self.expect(2, 1, 0))

    def test_a_program_that_crashes_or_hangs_is_a_failure(self):
        self.write(("a", "FAIL", -6, "", None), ("b", "TIMEOUT", -15, "", None), ("c", "ERROR", 99, "", None),
                   ("d", "INTERRUPT", -2, "", None), ("e", "UNEXPECTEDPASS", 0, "", None))
        self.expect(0, 5, 0)

    def test_names_that_begin_alike_do_not_mix(self):
        self.write(("nn", "OK", 0, "", [PASSES]), ("nn_slow", "OK", 0, "", [PASSES, PASSES]))
        self.expect(3, 0, 0)

    def test_two_tests_of_one_name_are_a_failure(self):
        self.write(("nn", "OK", 0, "", None), ("nn", "OK", 0, "", None))
        self.assertIn("2 tests are called nn", self.expect(2, 1, 0))

    def test_folders_add_up(self):
        other = self.base / "build-sanitize"
        self.write(("nn", "OK", 0, "", [PASSES]))
        self.write(("nn", "FAIL", 1, "", [FAILS]), folder=other)
        text = self.expect(1, 1, 0, str(self.folder), str(other))
        self.assertIn("build: 1 passed, 0 failed, 0 skipped\n", text)
        self.assertIn("FAILED   build-sanitize: nn: A.Fails", text)

    def test_nothing_run_is_a_failure(self):
        self.expect(0, 1, 0)  # no log at all
        self.write()
        self.expect(0, 1, 0)
        code, lines = self.count("--failed", "build: does not compile")
        self.assertEqual((code, lines[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_failure_from_elsewhere_counts(self):
        self.write(("nn", "OK", 0, "", [PASSES]))
        self.assertIn("FAILED   build-tsan: does not compile\n",
                      self.expect(1, 1, 0, "--failed", "build-tsan: does not compile", str(self.folder)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
