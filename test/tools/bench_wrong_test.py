#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `lockstep bench` does where a result is wrong: MPI's own collectives are spoiled by a preloaded library.

usage: bench_wrong_test.py LOCKSTEP WRONG_MPI [NAMES OF TESTS]
"""
import json
import sys

import program

ROUNDS = 5
BENCH = ["bench", "--min", "40", "--max", "4000", "--factor", "10", "--iterations", ROUNDS, "--assumed", "--json",
         "--compare", "mpi"]
NAMES = {"all_reduce": "MPI_Allreduce", "reduce_scatter": "MPI_Reduce_scatter_block", "all_gather": "MPI_Allgather",
         "broadcast": "MPI_Bcast"}
WRONG_MPI = ""


class Wrong(program.Case):
    def spoiled(self, *arguments):
        done = program.run(*BENCH, *arguments, prefix=[*program.mpirun(3), "-x", f"LD_PRELOAD={WRONG_MPI}"])
        return done, [json.loads(line) for line in done.stdout.splitlines()]

    def test_mpis_results_are_compared_and_end_with_70(self):
        for collective, name in NAMES.items():
            with self.subTest(collective=collective):
                done, rows = self.spoiled("--collective", collective)
                self.assertEqual(len(rows), 3, done.stderr)
                for row in rows:
                    self.assertEqual(row["wrong"], 0)
                    self.assertEqual(row["mpi_wrong"], 3 * ROUNDS)  # one element of each rank
                self.assertIn(f"lockstep: {9 * ROUNDS} elements of {name}'s results are wrong\n", done.stderr)
                self.assertEqual(done.returncode, 70)

    def test_nothing_compared_is_nothing_found(self):
        done, rows = self.spoiled("--check", "none")
        self.assertEqual([(row["wrong"], row["mpi_wrong"]) for row in rows], [(None, None)] * 3)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_mpis_results_are_right_otherwise(self):
        for collective in NAMES:
            for flags in (["--dtype", "int64"], ["--op", "product"]) if collective.endswith(("reduce", "ter")) else ([],):
                done = self.good(*BENCH, "--collective", collective, *flags, prefix=program.mpirun(3))
                self.assertEqual([json.loads(line)["mpi_wrong"] for line in done.stdout.splitlines()], [0] * 3)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    WRONG_MPI = sys.argv.pop(2)
    sys.exit(not program.main(__doc__))
