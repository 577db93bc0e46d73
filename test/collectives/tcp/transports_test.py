#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Both transports between processes, by the same laws.

usage: transports_test.py TRANSPORT_PROGRAM MPIRUN MPIRUN_ARGUMENT...
"""
import subprocess
import sys
import unittest

PROGRAM, MPIRUN = sys.argv[1], sys.argv[2:]


class Transports(unittest.TestCase):
    def job(self, kind, part, processes, *options):
        return subprocess.run([*MPIRUN, *options, "-n", str(processes), PROGRAM, kind, part], capture_output=True,
                              text=True, timeout=100)

    def right(self, part, *processes):
        for kind in ("tcp", "mpi"):
            for number in processes:
                with self.subTest(transport=kind, processes=number):
                    done = self.job(kind, part, number, "--enable-recovery")
                    # With --enable-recovery mpirun ends with 0 whatever its processes did.
                    self.assertEqual(done.stdout.splitlines(), ["right"] * number, done.stdout + done.stderr)

    def test_messages_of_all_lengths_and_tags_arrive_in_their_order(self):
        self.right("messages", 2, 3)

    def test_sums_over_a_ring_are_exact(self):
        self.right("ring", 1, 2, 3)

    def test_another_length_is_noticed_by_the_receiver(self):
        self.right("lengths", 2)

    def test_peers_hear_why_a_rank_stops(self):
        self.right("tell", 3)

    def test_a_process_that_posts_nothing_is_named_at_the_deadline(self):
        for kind in ("tcp", "mpi"):
            with self.subTest(transport=kind):
                done = self.job(kind, "late", 2, "--enable-recovery")
                self.assertRegex(done.stdout, r"error timeout: rank 1 is missing: bucket 0 \(dense.weight\): sum \(ring, 4 bytes\): "
                                              r"rank 0 waited 500 ms; arrived: rank 0$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
