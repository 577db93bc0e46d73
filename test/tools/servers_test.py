#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training with parameter servers: what `lockstep train` prints of it, and what it refuses.

usage: servers_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import re
import sys
from unittest import mock

import program
from program import COLLECTIVE, Case, SMALL, mpirun, refused, whole


class Servers(Case):
    SERVERS = ["--strategy", "parameter_server"]

    def test_one_worker_makes_the_steps_of_one_replica(self):
        one = self.result(*SMALL)
        for servers in ("1", "2"):
            other = self.result(*SMALL, *self.SERVERS, "--servers", servers)
            self.assertEqual(other["loss"], one["loss"])
            self.assertEqual((other["strategy"], other["steps"]), ("parameter_server", one["steps"]))

    def test_several_make_all_steps_together(self):
        for flags in ([], ["--sync"], ["--sync", "--aggregate", "2"], ["--wire", "bfloat16", "--full-rate", "--warm-up", "2"]):
            result = self.result(*SMALL, *self.SERVERS, "--replicas", "3", "--partition", "fixed:2", *flags)
            self.assertEqual((result["steps"], result["replicas"]), (6, 3))

    def test_synchronous_steps_have_the_loss_of_the_whole_batch(self):
        """Of workers in one process, and in three of mpirun."""
        def steps(*flags, prefix=()):
            log = self.top / f"log{len(list(self.top.iterdir()))}"
            self.good("train", *SMALL, *flags, "--log", log, prefix=prefix)
            events = [json.loads(line) for line in log.read_text().splitlines()]
            return [(event["loss"], event["accuracy"]) for event in events if event["event"] == "step"]

        one = steps()
        self.assertEqual(len(one), 6)
        sync = [*self.SERVERS, "--sync"]
        for several in (lambda: steps(*sync, "--replicas", "3"), lambda: steps(*sync, prefix=mpirun(4))):
            for (loss, accuracy), (found, right) in zip(one, several(), strict=True):
                self.assertAlmostEqual(found, loss, places=4)
                self.assertAlmostEqual(right, accuracy, places=9)

    def test_of_tables_the_touched_rows_travel(self):
        flags = ["--model", "wide_deep", "--steps", "12", "--examples", "2000", "--batch", "40", *self.SERVERS, "--servers", "3",
                 "--partition", "fixed:3"]
        dense, columns = 98140, 8 + 2  # numbers of the model beside its tables, and of a row of both
        per_step = {}
        for batch in ("10", "40"):
            moved = self.result(*flags, "--replicas", "2", "--batch", batch)["traffic"]
            for way in ("pulled", "pushed"):
                self.assertEqual(moved["bytes_" + way], 4 * (dense * moved["steps"] + columns * moved["rows_" + way] // 2))
            per_step[batch] = moved["rows_per_step"]
        self.assertLess(per_step["40"], 4 * 40 * 26)  # both tables, both ways
        self.assertLess(2 * per_step["10"], per_step["40"])
        whole = self.result(*flags, "--tables", "whole")["traffic"]
        self.assertEqual((whole["rows_pulled"], whole["bytes_pulled"]), (0, 4 * 10098260 * 12))
        done = self.good("train", *flags)
        self.assertIn("rows of tables", done.stderr)
        refused(self, ["train", *flags, "--accumulate", "2"], 64, ["wide_ids.weight", "let tables travel whole (--tables)"])

    def test_of_ten_million_rows_in_three_parts_the_touched_ones_travel(self):
        flags = ["--model", "wide_deep_10m", "--steps", "3", "--examples", "200", "--batch", "8", *self.SERVERS, "--servers", "3",
                 "--partition", "fixed:3", "--replicas", "2"]
        moved = self.result(*flags)["traffic"]
        for way in ("pulled", "pushed"):
            self.assertEqual(moved["bytes_" + way], 4 * (98140 * 3 + (8 + 2) * moved["rows_" + way] // 2))
            self.assertLessEqual(moved["rows_" + way], 3 * 8 * 26 * 2)  # both tables
        table = self.good("train", *flags, "--placement").stderr
        rows = [int(last) - int(first) + 1 for first, last in re.findall(r"^deep_ids\.weight +\S+ +(\d+)-(\d+) ", table, re.MULTILINE)]
        self.assertEqual((len(rows), sum(rows)), (3, 10_000_016), table)

    def test_the_table_says_where_variables_lie(self):
        done = self.good("train", *SMALL, *self.SERVERS, "--servers", "2", "--place", "greedy", "--placement")
        self.assertIn("bytes of each server: 0:", done.stderr)

    def test_a_cluster_without_its_strategy_is_refused(self):
        cluster = {"worker": ["127.0.0.1:1", "127.0.0.1:2"], "ps": ["127.0.0.1:3"]}
        text = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})
        with mock.patch.dict(os.environ, {"TF_CONFIG": text}):
            refused(self, ["train", *SMALL, *COLLECTIVE], 64, ["TF_CONFIG", "ps", "all-reduce"])
            self.good("train", *SMALL, "--strategy", "mirrored")  # one process, which looks for nobody

    def test_the_tasks_of_a_cluster_do_not_each_train_alone(self):
        task = {"type": "worker", "index": 0}
        for cluster, code, words in (
                ({"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, 75, ["process 1 of 2 did not reach process 0", "within 1 s"]),
                ({"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}, 75, ["server 0", "nobody answers"])):
            with mock.patch.dict(os.environ, {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}):
                done = program.run("train", *SMALL, "--insecure", "--deadline", "1")
                self.assertEqual(done.returncode, code, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
        self.assertIn("strategy: parameter_server, because TF_CONFIG has 1 server", done.stderr)

    def test_flags_of_another_strategy_are_refused(self):
        for flags in (["--servers", "2"], ["--sync"], ["--partition", "fixed:2"], ["--warm-up", "3"], ["--tables", "whole"],
                      ["--restarts", "2"], ["--insecure"], ["--tls-key", "none.pem"]):
            refused(self, ["train", *SMALL, *flags], 64, [flags[0], "parameter_server", "mirrored"])
        for flags in (["--algorithm", "ring"], ["--clip", "1"], ["--aggregate", "1"], ["--sync", "--full-rate"], ["--memory-limit", "1g"],
                      ["--partition", "fixed:0"]):
            refused(self, ["train", *SMALL, *self.SERVERS, *flags], 64, [])


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
