#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Who started the program: which processes train together, and which are refused since each would work alone.

usage: launchers_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import sys
from unittest import mock

import program
from program import COLLECTIVE, Case, SMALL, mpirun, refused

FOREIGN = (
    ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI_SIZE=2"),
    ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2"}, "SLURM_STEP_NUM_TASKS=2"),
    ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}, "WORLD_SIZE=4"),
    ({"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"}, "MV2_COMM_WORLD_SIZE=2"),
    ({"PMIX_RANK": "0"}, "PMIX_RANK")   # of how many, nothing says,
)
ALONE = (
    {"PMI_RANK": "0", "PMI_SIZE": "1"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},   # a batch script, which is one process
    {"WORLD_SIZE": "4"}, {"RANK": "first", "WORLD_SIZE": "many"}, {"RANK": "0", "WORLD_SIZE": ""},
)


class Launchers(Case):
    def test_processes_that_cannot_find_each_other_are_refused(self):
        for variables, words in FOREIGN:
            with mock.patch.dict(os.environ, variables):
                for flags in ([], COLLECTIVE, ["--strategy", "mirrored"], ["--strategy", "parameter_server"]):
                    refused(self, ["train", *SMALL, *flags], 64, [words, "mpirun -n", "srun --mpi=pmix"])
                refused(self, ["bench", "--max", "4k"], 64, [words])
                job = json.loads(program.run("doctor", "--json").stdout)["job"]
                self.assertFalse(job["found"])
                self.assertIn(words, job["text"])

    def test_one_process_is_no_job(self):
        for variables in ALONE:
            with mock.patch.dict(os.environ, variables):
                self.assertEqual(self.result(*SMALL)["strategy"], "mirrored")

    def test_mpirun_counts_wherever_it_was_started(self):
        with mock.patch.dict(os.environ, {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "5", "RANK": "0", "WORLD_SIZE": "3"}):
            self.assertEqual(self.result(*SMALL, *COLLECTIVE, prefix=mpirun())["replicas"], 2)

    def test_processes_that_the_launcher_of_another_mpi_leaves_alone_are_refused(self):
        with mock.patch.dict(os.environ, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}):
            refused(self, ["train", *SMALL, "-q"], 64, ["mpirun started 2 processes, and MPI joined 1 of them", "lockstep doctor"])

    def test_several_processes_train_together_without_being_told_to(self):
        done = self.good("train", *SMALL, "--json", "-v", prefix=mpirun())
        self.assertEqual(json.loads(done.stdout)["strategy"], "collective_all_reduce")
        self.assertEqual(json.loads(done.stdout)["replicas"], 2)
        self.assertEqual(done.stderr.count("strategy: collective_all_reduce, because 2 processes were started (by mpirun)"), 1, done.stderr)
        refused(self, ["train", *SMALL, "--strategy", "mirrored"], 64, ["2 were started"], prefix=mpirun())

    def test_one_process_trains_alone_without_a_word(self):
        done = self.good("train", *SMALL)
        self.assertNotIn("strategy: ", done.stderr)

    def test_doctor_says_whether_mpirun_notices_a_lost_host(self):
        for flags, found in (([], False), (["--mca", "oob_tcp_keepalive_time", "10"], True)):
            done = self.good("doctor", "--json", prefix=[*mpirun(1), *flags])
            self.assertEqual(json.loads(done.stdout)["keep-alive"]["found"], found)
        (self.top / ".openmpi").mkdir()
        (self.top / ".openmpi" / "mca-params.conf").write_text("# keep-alive\n oob_tcp_keepalive_time = 10\n")
        with mock.patch.dict(os.environ, {"HOME": str(self.top)}):
            self.assertTrue(json.loads(self.good("doctor", "--json").stdout)["keep-alive"]["found"])

    def test_the_first_lines_say_which_device(self):
        if any(part.startswith("device cuda") for part in json.loads(program.run("doctor", "--json").stdout)):
            self.skipTest("this machine has a GPU")
        for prefix, flags in (((), []), (mpirun(), []), ((), ["--strategy", "parameter_server", "--replicas", "2"])):
            lines = self.good("train", *SMALL, *flags, "-v", prefix=prefix).stderr.splitlines()
            said = [number for number, line in enumerate(lines) if "device: cpu, because no GPU was found" in line]
            self.assertEqual(len(said), 1, lines)
            self.assertLess(said[0], 4)
        for flags in ([], ["--device", "cpu", "-v"]):
            self.assertNotIn("no GPU was found", self.good("train", *SMALL, *flags).stderr)
        refused(self, ["train", *SMALL, "--dtype", "float16"], 64, ["--dtype float16", "cpu:0 has no kernels"])

    def test_an_empty_tf_config_is_none(self):
        for text in ("", " \n", "{}", "null", '{"cluster": {}}', '{"cluster": {}, "task": {"type": "worker", "index": 0}}'):
            with mock.patch.dict(os.environ, {"TF_CONFIG": text}):
                for flags in (COLLECTIVE, ["--strategy", "mirrored"]):
                    self.assertNotIn("TF_CONFIG", self.good("train", *SMALL, *flags).stderr)
        for text in ("[]", '{"task": {"type": "worker", "index": 0}}', '{"clusters": {}}'):
            with mock.patch.dict(os.environ, {"TF_CONFIG": text}):
                refused(self, ["train", *SMALL, *COLLECTIVE], 64, ["TF_CONFIG"])


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
