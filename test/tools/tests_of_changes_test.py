#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/tests_of_changes.py picks the tests of the folders in which files have changed, and the lints.

usage: tests_of_changes_test.py TESTS_OF_CHANGES_PY BUILD
"""
import importlib.util
import subprocess
import sys
import unittest

SPEC = importlib.util.spec_from_file_location("tests_of_changes", sys.argv[1])
CHANGES = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(CHANGES)
BUILD = sys.argv[2]
TESTS, TARGETS = CHANGES.introspected(BUILD, "--tests"), CHANGES.introspected(BUILD, "--targets")


class TestsOfChanges(unittest.TestCase):
    def chosen(self, *paths):
        return [name for name in CHANGES.chosen(TESTS, TARGETS, paths) if not self.is_lint(name)]

    @staticmethod
    def is_lint(name):
        return any(suite.endswith("lint") for test in TESTS if test["name"] == name for suite in test["suite"])

    def test_each_program_of_the_table_is_a_test(self):
        names = {name for test in TESTS for name in (test["name"], test["name"].rstrip("0123456789").rstrip("_"))}
        optional = {"nccl", "cuda", "cuda_kernels", "cuda_ops", "bench_device", "servers", "mpi_bootstrap_2", "mpi_failure",
                    "exchange", "virtual_cluster_sh", "task_cluster_sh", "bundle_sh", "gpu_rehearsal_py",
                    "install"}
        programs = {program for _, programs in CHANGES.PROGRAMS for program in programs.split()}
        self.assertLessEqual(programs - optional, names)

    def test_a_source_brings_all_shards_of_its_program_and_no_other(self):
        names = self.chosen("strategies/synchronous/loss_scale.cpp")
        self.assertTrue(names)
        self.assertEqual({name.rstrip("0123456789").rstrip("_") for name in names}, {"strategies", "job_ranks"})

    def test_a_test_brings_its_program(self):
        self.assertEqual(self.chosen("test/collectives/topology/topology_test.cpp"), ["wire"])
        self.assertEqual(self.chosen("test/engine/nn/graph_memory_test.cpp"), ["allocations"])   # of another folder

    def test_a_header_of_tests_brings_the_programs_that_include_it(self):
        programs = {name.rstrip("0123456789").rstrip("_") for name in self.chosen("test/strategies/small_job.h")}
        self.assertLessEqual({"strategies", "servers"}, programs)
        self.assertGreater(len(self.chosen("test/support/events.h")), 3)

    def test_a_command_brings_the_scripts_that_run_it(self):
        self.assertIn("plan", self.chosen("tools/plan.cpp"))
        self.assertLessEqual({"help", "texts"}, set(self.chosen("tools/help.cpp")))

    def test_a_revision_that_is_none_is_an_error_in_one_line(self):
        done = subprocess.run([sys.argv[1], BUILD, "no-such-revision"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Atests_of_changes: git diff .* failed: .*no-such-revision.*\n\Z")

    def test_a_script_brings_the_tests_that_run_it(self):
        self.assertEqual(self.chosen("test/tools/restart_test.py"), ["restart"])

    def test_the_headers_are_compiled_alone_where_one_has_changed(self):
        self.assertNotIn("headers", CHANGES.chosen(TESTS, TARGETS, ["engine/base/log.cpp"]))
        self.assertIn("headers", CHANGES.chosen(TESTS, TARGETS, ["engine/base/log.h"]))

    def test_documents_bring_the_lints_alone_and_readmes_the_tests_that_read_them(self):
        self.assertEqual(self.chosen("tools/CHANGELOG.md"), [])
        self.assertEqual(set(self.chosen("models/README.md")), {"readme_commands", "install"})
        self.assertEqual(set(self.chosen("README.md", "strategies/launchers/README.md")), {"readme_commands", "install", "quickstart_sh"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
