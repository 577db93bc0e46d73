#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`lockstep bench`: what it prints, as a table, as CSV and as JSON, with ranks that are threads and
ranks that are processes. Times are not judged here; what it refuses is in bench_refused_test.py,
and its plots are in bench_svg_test.py.

usage: bench_test.py LOCKSTEP [NAMES OF TESTS]
"""
import csv
import io
import json
import os
import sys
from unittest import mock

import program

FIELDS = {"bytes", "algorithm", "reason", "in_place_us", "out_of_place_us", "min_us", "p99_us", "busbw_gb_s",
          "roofline_percent", "predicted_us", "wrong"}
SMALL = ["bench", "--min", "64", "--max", "64k", "--factor", "16", "--iterations", "5", "--warmup", "1"]
BYTES = [64, 1024, 16384]


def rows(done):
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found, f"no lines: {done.stderr}"
    return found


class Bench(program.Case):
    def check(self, row):
        self.assertLessEqual(FIELDS, set(row))
        self.assertEqual(row["wrong"], 0)
        self.assertEqual(row["bytes"], row["count"] * 4)
        self.assertGreater(row["min_us"], 0)
        self.assertLessEqual(row["min_us"], row["in_place_us"])
        self.assertLessEqual(row["in_place_us"], row["p99_us"])
        self.assertGreater(row["out_of_place_us"], 0)
        self.assertGreater(row["roofline_percent"], 0)
        # Of two ranks: 2 (n - 1) / n = 1.
        self.assertAlmostEqual(row["busbw_gb_s"], row["bytes"] / row["in_place_us"] / 1e3, places=6)
        self.assertTrue(row["reason"])

    def test_json_has_a_line_for_each_size(self):
        found = rows(self.good(*SMALL, "--json"))
        self.assertEqual([row["bytes"] for row in found], BYTES)
        for row in found:
            self.check(row)
            self.assertGreater(row["predicted_us"], 0)  # the planner's choice, and what it expects
            self.assertNotIn("mpi_us", row)

    def test_ranks_on_devices_have_a_line_for_each_size(self):
        """Processors stand in for GPUs."""
        flags = ["bench", "--devices", "cpu:0,cpu:0", "--min", "64", "--max", "64k", "--factor", "16", "--iterations", "2",
                 "--copy", "1MiB"]
        done = self.good(*flags, "--json")
        self.assertEqual(done.stderr, "lockstep: NCCL is not timed: cpu:0 is not a GPU\n")
        found = rows(done)
        self.assertEqual([row["bytes"] for row in found], BYTES)
        for row in found:
            self.assertLessEqual(FIELDS, set(row))
            self.assertEqual((row["wrong"], row["chosen"], row["iterations"], row["devices"]), (0, True, 2, "cpu:0,cpu:0"))
            self.assertLessEqual(row["min_us"], row["in_place_us"])
            self.assertLessEqual(row["in_place_us"], row["p99_us"])
            self.assertGreater(min(row["roofline_percent"], row["predicted_us"], row["copy_gb_s"]), 0)
            self.assertIsNone(row["out_of_place_us"])
            self.assertIsNone(row["nccl_us"])
        table = self.good(*flags, "--algorithm", "direct,ring", "--plot", self.top / "a.svg").stdout
        self.assertIn("# 2 ranks on cpu:0,cpu:0: ", table)
        self.assertIn("NCCL us", table)
        self.assertRegex(table, r"\n +64 +16 direct .*\n +64 +16 ring ")
        self.assertIn("roofline", (self.top / "a.svg").read_text())

    def test_all_ranks_make_the_same_choice(self):
        """Each process and each thread chooses for itself: if they did not agree, results would be wrong or never come."""
        sizes = ["--min", "1KiB", "--max", "1MiB", "--factor", "4", "--iterations", "2"]
        for prefix, ranks in (((), ["--ranks", "2"]), (program.mpirun(2), [])):
            found = rows(self.good("bench", *sizes, *ranks, "--json", prefix=prefix))
            self.assertEqual([row["wrong"] for row in found], [0] * 6)

    def test_bench_and_plan_agree(self):
        """Ranks that have a processor each of their own still share the machine that the planner sees."""
        sizes = ["--min", "4KiB", "--max", "1MiB", "--factor", "4", "--iterations", "1", "--warmup", "0"]
        prefix = program.mpirun(2)
        for flags in (["--assumed"], []):
            for _ in range(10):
                done = self.good("bench", *sizes, *flags, "--json", prefix=prefix)
                if "but not kept" not in done.stderr:
                    break
            else:
                self.skipTest("the machine is busy with other work: no costs are kept")
            found = rows(done)
            plan = json.loads(self.good("plan", *flags, "--json", prefix=prefix).stdout)
            # What bench measured and stored is what plan takes.
            self.assertEqual(plan["calibration_stored"], not flags)
            table = {row["bytes"]: row for row in plan["table"]}
            for row in found:
                self.assertEqual(row["algorithm"], table[row["bytes"]]["algorithm"])
                self.assertAlmostEqual(row["predicted_us"], table[row["bytes"]]["predicted_us"])

    def test_bench_and_plan_agree_of_a_bucket_of_any_size(self):
        """Also where the update is separate: between powers of two no line is drawn."""
        prefix = program.mpirun(2)
        flags = ["--assumed", "--model", "mlp_wide", "--algorithm", "halving_doubling:1m.."]
        plan = json.loads(self.good("plan", *flags, "--json", prefix=prefix).stdout)
        self.assertEqual(plan["update"], "separate")
        bucket = plan["buckets"][-1]
        size = str(bucket["bytes"])
        row, = rows(self.good("bench", "--min", size, "--max", size, "--iterations", "1", "--assumed", "--json",
                              prefix=prefix))
        self.assertEqual(row["algorithm"], bucket["algorithm"])
        self.assertAlmostEqual(row["predicted_us"], bucket["predicted_us"])

    def test_as_many_rounds_as_there_may_be(self):
        """The times of all are more than one exchange takes."""
        row, = rows(self.good("bench", "--min", "64", "--max", "64", "--iterations", "50000", "--warmup", "0",
                              "--assumed", "--json"))
        self.assertEqual((row["iterations"], row["wrong"]), (50000, 0))

    def test_one_rank_has_nothing_to_add(self):
        for row in rows(self.good(*SMALL, "--ranks", "1", "--json")):
            self.assertEqual((row["wrong"], row["busbw_gb_s"], row["ranks"]), (0, 0, 1))
            self.assertEqual(row["reason"], "one rank has nothing to add")
            self.assertIsNone(row["barrier_ns"])  # there are no two

    def test_one_process_that_a_launcher_started_is_one_rank(self):
        prefix, line = program.mpirun(1), "one process was started, so there is one rank, and nothing to send"
        done = self.good(*SMALL, "--json", prefix=prefix)
        self.assertEqual([(row["ranks"], row["reason"]) for row in rows(done)], [(1, "one rank has nothing to add")] * 3)
        self.assertEqual(done.stderr.count(line), 1, done.stderr)
        done = self.good(*SMALL, "--json", "--ranks", "2", prefix=prefix)
        self.assertEqual([row["ranks"] for row in rows(done)], [2] * 3)
        self.assertNotIn(line, done.stderr)
        program.refused(self, ["bench", "--regret"], 64, ["--regret needs more than one rank"], prefix=prefix)

    def test_lines_say_what_they_are_of(self):
        for flags, of in (([], (2, 1, "all_reduce", "float32", "sum")),
                          (["--ranks", "3", "--dtype", "float16", "--op", "mean"], (3, 1, "all_reduce", "float16", "mean")),
                          (["--collective", "reduce_scatter", "--op", "max"], (2, 1, "reduce_scatter", "float32", "max")),
                          (["--collective", "broadcast", "--dtype", "int64"], (2, 1, "broadcast", "int64", None))):
            for row in rows(self.good(*SMALL, "--assumed", "--json", *flags)):
                self.assertEqual(tuple(row[key] for key in ("ranks", "hosts", "collective", "dtype", "op")), of)

    def test_all_algorithms_have_a_line_for_each_size(self):
        found = rows(self.good(*SMALL, "--json", "--algorithm", "all", "--ranks", "3"))
        for size in BYTES:
            names = [row["algorithm"] for row in found if row["bytes"] == size]
            self.assertEqual(len(names), len(set(names)))
            self.assertLessEqual({"direct", "ring"}, set(names))
        self.assertEqual({row["wrong"] for row in found}, {0})
        # Of three ranks 4/3 of the bytes go over the bus.
        for row in found:
            self.assertAlmostEqual(row["busbw_gb_s"], row["algbw_gb_s"] * 4 / 3, places=6)

    def test_among_algorithms_the_choice_is_marked(self):
        flags = [*SMALL, "--assumed", "--ranks", "3"]
        choice = {row["bytes"]: row for row in rows(self.good(*flags, "--json"))}
        self.assertEqual([row["chosen"] for row in choice.values()], [True] * 3)
        found = rows(self.good(*flags, "--json", "--algorithm", "all"))
        for size in BYTES:
            marked, = (row for row in found if row["bytes"] == size and row["chosen"])
            self.assertEqual([marked[key] for key in ("algorithm", "reason")],
                             [choice[size][key] for key in ("algorithm", "reason")])
        for row in found:  # of the others, why they are not the choice
            if not row["chosen"]:
                self.assertRegex(row["reason"], rf"^same plan as |\b{choice[row['bytes']]['algorithm']}\b")
        lines = self.good(*flags, "--algorithm", "all").stdout.splitlines()
        self.assertTrue(any(line.startswith("# *: chosen by the planner") for line in lines), lines)
        marked = [line.split() for line in lines if not line.startswith("#") and " *" in line]
        self.assertEqual([(words[0], words[2]) for words in marked],
                         [(str(size), choice[size]["algorithm"]) for size in BYTES])

    def test_the_algorithms_of_a_size_are_timed_in_turn(self):
        """So they share what changes from one moment to another: the roofline, the barrier, other work."""
        found = rows(self.good(*SMALL, "--assumed", "--json", "--ranks", "3", "--algorithm", "all"))
        for size in BYTES:
            same = [row for row in found if row["bytes"] == size]
            self.assertGreater(len(same), 2)
            for key in ("barrier_ns", "disturbed", "iterations"):
                self.assertEqual(len({row[key] for row in same}), 1, key)
            rooflines = [row["roofline_percent"] * row["in_place_us"] for row in same]
            self.assertAlmostEqual(min(rooflines) / max(rooflines), 1, places=9)

    def test_a_list_of_algorithms_is_taken_in_its_order(self):
        found = rows(self.good(*SMALL, "--json", "--algorithm", "ring, direct"))
        self.assertEqual([row["algorithm"] for row in found], ["ring", "direct"] * len(BYTES))

    def test_the_choice_may_stand_in_a_list(self):
        """A line for each algorithm, and of the chosen one why."""
        for flags in (["--ranks", "3"], ["--ranks", "2"]):
            chosen = {row["bytes"]: row for row in rows(self.good(*SMALL, "--assumed", "--json", *flags))}
            found = rows(self.good(*SMALL, "--assumed", "--json", *flags, "--algorithm", "ring,auto,direct"))
            for size in BYTES:
                here = {row["algorithm"]: row["reason"] for row in found if row["bytes"] == size}
                self.assertEqual(set(here), {"ring", "direct", chosen[size]["algorithm"]})
                self.assertEqual(len(here), sum(row["bytes"] == size for row in found))
                self.assertEqual(here[chosen[size]["algorithm"]], chosen[size]["reason"])
                self.assertIn(chosen[size]["algorithm"], here["ring"])

    def test_algorithms_by_size_are_those_of_their_sizes(self):
        """As train and plan take them; a size that none names has the choice."""
        chosen = rows(self.good(*SMALL, "--assumed", "--json"))[2]
        found = rows(self.good(*SMALL, "--assumed", "--json", "--algorithm", "direct:..1k,ring:1KiB..2k"))
        self.assertEqual([row["bytes"] for row in found], BYTES)
        self.assertEqual([row["algorithm"] for row in found], ["direct", "ring", chosen["algorithm"]])
        for row, name in zip(found, ("direct", "ring")):
            self.assertIn(name, row["reason"])
        self.assertEqual(found[2]["reason"], chosen["reason"])
        self.assertEqual({row["wrong"] for row in found}, {0})
        found = rows(self.good(*SMALL, "--assumed", "--json", "--algorithm", "direct:..1k, ring:1KiB..2k ,auto:2k.."))
        self.assertEqual([row["algorithm"] for row in found], ["direct", "ring", chosen["algorithm"]])
        self.assertEqual(found[2]["reason"], chosen["reason"])
        found = rows(self.good(*SMALL, "--assumed", "--json", "--algorithm", "auto:.."))
        self.assertEqual(found[2]["reason"], chosen["reason"])

    def test_one_bound_beyond_the_others_default_is_both(self):
        self.assertEqual([row["bytes"] for row in rows(self.good("bench", "--max", "1k", "--assumed", "--json"))], [1024])
        program.refused(self, ["bench", "--min", "900GiB"], 74, ["a benchmark of 900GiB", "are free"])

    def test_every_type_and_operation_is_exact(self):
        for dtype in ("float32", "float64", "int32", "int64", "float16", "bfloat16"):
            for op in ("sum", "min", "max", "mean", "product"):
                if op == "mean" and dtype.startswith("int"):
                    continue
                for collective in ("all_reduce", "reduce_scatter")[:2 if op == "sum" else 1]:
                    found = rows(self.good(*SMALL, "--assumed", "--json", "--dtype", dtype, "--op", op,
                                           "--collective", collective))
                    self.assertEqual([row["wrong"] for row in found], [0] * len(BYTES), (dtype, op, collective))
                    self.assertEqual([row["count"] * int(dtype[-2:]) // 8 for row in found], BYTES)

    def test_what_is_handed_out_is_exact(self):
        for collective, factor in (("all_gather", 2 / 3), ("broadcast", 1)):
            for dtype in ("float32", "bfloat16", "int64"):
                found = rows(self.good(*SMALL, "--json", "--dtype", dtype, "--collective", collective, "--ranks", "3"))
                self.assertEqual([row["wrong"] for row in found], [0] * len(BYTES), (dtype, collective))
                self.assertEqual([row["bytes"] for row in found], BYTES)
                for row in found:
                    self.assertEqual((row["algorithm"], row["reason"]), ("direct", f"no other algorithm makes {collective}"))
                    self.assertGreater(row["roofline_percent"], 0)
                    self.assertAlmostEqual(row["busbw_gb_s"], row["algbw_gb_s"] * factor, places=6)
            alone, = rows(self.good("bench", "--min", "4k", "--max", "4k", "--json", "--collective", collective, "--ranks", "1"))
            self.assertEqual((alone["wrong"], alone["busbw_gb_s"], alone["reason"]), (0, 0, "one rank has nobody to tell"))

    def test_costs_are_measured_where_something_is_chosen_by_them(self):
        """What is measured of processes is kept, of ranks that are more than processors always."""
        crowd = len(os.sched_getaffinity(0)) + 1
        small = ["bench", "--min", "4k", "--max", "4k", "--iterations", "1"]
        jobs = [(["--collective", one, "--ranks", str(crowd)], (), 0) for one in ("broadcast", "reduce_scatter", "all_reduce")]
        jobs.append(([], program.mpirun(crowd), 1))
        for number, (flags, prefix, kept) in enumerate(jobs):
            with mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(self.top / str(number))}):
                self.good(*small, *flags, prefix=prefix)
            self.assertEqual(len(list((self.top / str(number)).glob("lockstep/*"))), kept, flags)

    def test_mpi_is_timed_beside_every_collective(self):
        prefix = program.mpirun(3)
        for collective in ("reduce_scatter", "all_gather", "broadcast"):
            file = self.top / "bench.svg"
            found = rows(self.good(*SMALL, "--json", "--collective", collective, "--compare", "mpi", "--plot", file,
                                   prefix=prefix))
            self.assertEqual([row["wrong"] for row in found], [0] * len(BYTES))
            for row in found:
                self.assertAlmostEqual(row["ratio"], row["mpi_us"] / row["in_place_us"], places=6)
            name = {"reduce_scatter": "MPI_Reduce_scatter_block", "all_gather": "MPI_Allgather", "broadcast": "MPI_Bcast"}
            self.assertIn(name[collective], file.read_text())
        self.good(*SMALL, "--collective", "broadcast", "--dtype", "float16", "--compare", "mpi", prefix=prefix)

    def test_sums_of_16_bits_are_exact_by_every_algorithm(self):
        for dtype, op in (("float16", "product"), ("bfloat16", "sum"), ("bfloat16", "mean")):
            found = rows(self.good(*SMALL, "--assumed", "--json", "--dtype", dtype, "--op", op, "--ranks", "5",
                                   "--algorithm", "all"))
            self.assertGreater(len(found), 3 * len(BYTES))
            self.assertEqual({row["wrong"] for row in found}, {0}, (dtype, op))

    def test_the_table_names_its_columns(self):
        lines = self.good(*SMALL, "--algorithm", "direct").stdout.splitlines()
        for comment in ("# all_reduce of float32 (sum), 2 ranks (threads) on 1 host, ",
                        "# barrier of ranks 0 and 1: ", "# us, min, p99: median, least and 99th percentile in place",
                        "# *: chosen by the planner"):
            self.assertTrue(any(line.startswith(comment) for line in lines), comment)
        lines = [line for line in lines if not line.startswith("#")]
        self.assertEqual(self.good(*SMALL, "--algorithm", "direct", "-q").stdout.count("#"), 0)
        self.assertEqual(len(lines), 1 + len(BYTES))
        for word in ("bytes", "count", "algorithm", "us", "min", "p99", "out us", "algbw", "busbw", "roof %",
                     "predicted", "wrong"):
            self.assertIn(word, lines[0])
        for line, size in zip(lines[1:], BYTES):
            words = line.split()
            self.assertEqual(words[:3], [str(size), str(size // 4), "direct"])

    def test_csv_has_the_columns_of_the_json(self):
        found = list(csv.DictReader(io.StringIO(self.good(*SMALL, "--csv").stdout)))
        self.assertEqual([int(row["bytes"]) for row in found], BYTES)
        for row in found:
            self.assertLessEqual(FIELDS, set(row))
            self.assertEqual(row["wrong"], "0")
            # With all digits.
            self.assertAlmostEqual(float(row["algbw_gb_s"]) * float(row["in_place_us"]) * 1e3 / int(row["bytes"]), 1, places=12)
        # One of them may be a short number by chance, as times are whole nanoseconds.
        shares = [float(row["roofline_percent"]) for row in found]
        self.assertTrue(any(share != float(f"{share:.5g}") for share in shares), shares)
        layouts = [([], ()), (["--overlap"], ()), (["--reproducible"], ()), (["--regret"], ()),
                   (["--collective", "broadcast"], ())]
        if program.HAVE_MPI:
            layouts.append((["--compare", "mpi"], program.mpirun(2)))
        for flags, prefix in layouts:
            flags = [*SMALL, "--assumed", *flags]
            columns = csv.DictReader(io.StringIO(self.good(*flags, "--csv", prefix=prefix).stdout)).fieldnames
            for row in rows(self.good(*flags, "--json", prefix=prefix)):
                times = [f"{name}_us" for name in row.pop("us", {})]
                self.assertEqual(list(row), columns[:len(row)], flags)
                self.assertEqual(set(times) - set(columns[len(row):]), set())
                self.assertEqual(len(columns) > len(row), "--regret" in flags)
        flags = ["bench", "--scaling", "--gradients", "1kB", "--compute-ms", "1", "--assumed"]
        columns = csv.DictReader(io.StringIO(self.good(*flags, "--csv").stdout)).fieldnames
        self.assertEqual([list(row) for row in rows(self.good(*flags, "--json"))], [columns] * 2)

    def test_regrets_compare_the_choice_with_the_best(self):
        found = rows(self.good(*SMALL, "--json", "--regret", "--ranks", "3"))
        self.assertEqual([row["bytes"] for row in found], BYTES)
        for row in found:
            self.assertEqual(row["wrong"], 0)
            self.assertIn(row["algorithm"], row["us"])
            self.assertIn(row["best"], row["us"])
            self.assertLessEqual({"direct", "one_shot", "ring"}, set(row["us"]))
            # The first sample finds the best, and the second compares it with the choice, which may win.
            self.assertAlmostEqual(row["regret"], row["choice_us"] / row["best_us"])
            if row["best"] == row["algorithm"]:
                self.assertEqual(row["regret"], 1)
            else:
                self.assertEqual(row["us"][row["best"]], min(row["us"].values()))
                self.assertGreaterEqual(row["regret"], 1)
            self.assertGreater(row["predicted_us"], 0)

    def test_regrets_among_some_have_those_and_the_choice(self):
        lines = self.good(*SMALL, "--regret", "--algorithm", "ring").stdout.splitlines()
        self.assertFalse(any("p99" in line for line in lines))  # there are no such columns
        self.assertRegex(lines[-1], r"^# the choice is within 10 % of the best at \d of 3 sizes, within 25 % at \d; "
                                    r"\d+\.\d\d times it at worst$")
        lines = [line for line in lines if not line.startswith("#")]
        self.assertEqual(len(lines), 1 + len(BYTES))
        self.assertIn("ring", lines[0].split())
        table = list(csv.DictReader(io.StringIO(self.good(*SMALL, "--csv", "--regret").stdout)))
        self.assertEqual([int(row["bytes"]) for row in table], BYTES)
        self.assertTrue(all(float(row["ring_us"]) > 0 and row["wrong"] == "0" for row in table))

    def test_regrets_of_different_choices_stand_under_their_names(self):
        """A size has the times of those that took part in it, and no others."""
        flags = ["bench", "--min", "64", "--max", "64KiB", "--factor", "32", "--iterations", "2", "--assumed", "--regret",
                 "--algorithm", "ring"]
        table = list(csv.DictReader(io.StringIO(self.good(*flags, "--csv").stdout)))
        self.assertGreater(len({row["algorithm"] for row in table}), 1)
        for row in table:
            self.assertNotIn(None, row)  # a cell without a heading
            timed = {name[:-3] for name in row if name.endswith("_us") and row[name]}
            self.assertEqual(timed - {"predicted", "choice", "best"}, {"ring", row["algorithm"]})
        heading, *lines = [line.split() for line in self.good(*flags).stdout.splitlines() if not line.startswith("#")]
        columns = heading[heading.index("wrong") + 1:]
        for words in lines:
            cells = dict(zip(columns, words[-len(columns):]))
            self.assertEqual({name for name in cells if cells[name] != "-"}, {"ring", words[1]})

    def test_nothing_compared_is_not_nothing_wrong(self):
        for flags in ([], ["--regret"], ["--overlap"], ["--reproducible"]):
            flags = [*SMALL, "--assumed", *flags, "--check"]
            for check, shown in (("none", (None, "", "-")), ("last", (0, "0", "0"))):
                self.assertEqual({row["wrong"] for row in rows(self.good(*flags, check, "--json"))}, {shown[0]})
                table = csv.DictReader(io.StringIO(self.good(*flags, check, "--csv").stdout))
                self.assertEqual({row["wrong"] for row in table}, {shown[1]})
                lines = [line for line in self.good(*flags, check).stdout.splitlines() if not line.startswith("#")]
                end = lines[0].index("wrong") + len("wrong")
                self.assertEqual({line[end - 2:end].strip() for line in lines[1:]}, {shown[2]})
        alone, = rows(self.good("bench", "--scaling", "--ranks", "1", "--gradients", "1kB", "--compute-ms", "1", "--check",
                                "none", "--json"))
        self.assertIsNone(alone["wrong"])

    def test_overlap_has_its_three_times(self):
        for form in ("--json", "--csv"):
            done = self.good(*SMALL, form, "--overlap", "--algorithm", "direct,ring")
            found = rows(done) if form == "--json" else list(csv.DictReader(io.StringIO(done.stdout)))
            self.assertEqual([int(row["bytes"]) for row in found], [size for size in BYTES for _ in range(2)])
            for row in found:
                compute, alone, together = (float(row[name]) for name in ("compute_us", "alone_us", "together_us"))
                self.assertGreater(min(compute, alone, together), 0)
                hidden = row["hidden_percent"]
                self.assertIn(hidden, (None, ""))  # on one host the same processors do both
                self.assertEqual(int(row["wrong"]), 0)
        lines = [line for line in self.good(*SMALL, "--overlap").stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 1 + len(BYTES))
        self.assertIn("hidden %", lines[0])

    def test_reproducible_sums_have_the_same_bits_by_every_algorithm(self):
        """Threads, processes, one host: the checksum of a size depends on the numbers alone."""
        flags = [*SMALL, "--assumed", "--reproducible", "--algorithm", "all"]
        threads = ((), ["--ranks", "3"])
        processes = [(program.mpirun(3), [])] if program.HAVE_MPI else []
        for dtype, op, layouts in (("float32", "sum", [threads]), ("float16", "mean", [threads, *processes])):
            found = {}
            for prefix, ranks in layouts:
                for row in rows(self.good(*flags, "--dtype", dtype, "--op", op, *ranks, "--json", prefix=prefix)):
                    self.assertEqual(row["wrong"], 0)
                    self.assertAlmostEqual(row["times"], row["reproducible_us"] / row["plain_us"])
                    found.setdefault(row["bytes"], set()).add(row["bits"])
            self.assertEqual({size: len(bits) for size, bits in found.items()}, dict.fromkeys(BYTES, 1), dtype)
        found = list(csv.DictReader(io.StringIO(self.good(*SMALL, "--reproducible", "--csv").stdout)))
        self.assertEqual([(int(row["bytes"]), row["wrong"]) for row in found], [(size, "0") for size in BYTES])
        lines = [line for line in self.good(*SMALL, "--reproducible").stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), 1 + len(BYTES))
        self.assertIn("reproducible us", lines[0])

    def scaled(self, *arguments, compute=20, batch=10, prefix=()):
        """The rows of a table of scaling, whose percentages are those of their own times."""
        done = self.good("bench", "--scaling", "--json", "--compute-ms", compute, "--batch", batch, "--iterations", "4",
                         *arguments, prefix=prefix)
        found = rows(done)
        for row in found:
            n = row["ranks"]
            self.assertEqual(row["wrong"], 0)
            self.assertGreaterEqual(row["weak_step_ms"], compute)
            self.assertGreaterEqual(row["strong_step_ms"], compute / n)
            self.assertAlmostEqual(row["weak_examples_per_second"], 1e3 * n * batch / row["weak_step_ms"], places=3)
            self.assertAlmostEqual(row["strong_examples_per_second"], 1e3 * batch / row["strong_step_ms"], places=3)
            for way in ("weak", "strong"):
                alone = found[0][f"{way}_examples_per_second"]
                self.assertAlmostEqual(row[f"{way}_percent"], 100 * row[f"{way}_examples_per_second"] / (n * alone))
        self.assertEqual((found[0]["ranks"], found[0]["weak_percent"]), (1, 100))
        return found

    def test_scaling_has_a_line_for_each_number_of_ranks(self):
        found = self.scaled("--gradients", "1MiB", "--ranks", "3", "--assumed")
        self.assertEqual([row["ranks"] for row in found], [1, 2, 3])
        self.assertTrue(all(row["links_ms"] == 0 for row in found))
        processes = self.scaled("--gradients", "1MiB", "--assumed", prefix=program.mpirun(2))
        self.assertEqual([row["ranks"] for row in processes], [1, 2])
        table = self.good("bench", "--scaling", "--compute-ms", "2", "--gradients", "10kB", "--assumed").stdout.splitlines()
        self.assertEqual(table[0], "# faked: 2 ms of computing for 128 images on one rank; gradients of 2500 float32 in 1 buckets")
        self.assertEqual(len(table), 5)
        self.assertIn("128 images on each rank", table[-1])

    def test_scaling_of_processes_waits_for_no_whole_table(self):
        """What one rank measures alone takes longer than a wait for another may."""
        found = self.scaled("--gradients", "4KiB", "--deadline", "1", "--assumed", compute=200, prefix=program.mpirun(2))
        self.assertEqual([row["ranks"] for row in found], [1, 2])

    def test_scaling_on_faked_links_takes_their_time(self):
        """Eight V100 that have nothing to compute wait for the links; what they compute hides that."""
        for _ in range(5):  # other work takes from single runs
            found = self.scaled("--links", "1x8", compute=1)
            if all(row["weak_percent"] < 100 for row in found[1:]):
                break
        self.assertEqual([row["ranks"] for row in found], [1, 2, 4, 8])
        self.assertEqual(found[0]["links_ms"], 0)
        for row in found[1:]:
            self.assertGreater(row["links_ms"], 1)   # 102 MB over less than 100 GB/s
            self.assertGreater(row["weak_step_ms"], row["links_ms"])
            self.assertLess(row["weak_percent"], 100)
        busy = []
        for _ in range(5):
            busy.append(self.scaled("--links", "1x8", compute=350, batch=128)[-1]["weak_percent"])
            if busy[-1] >= 90:
                break
        self.assertGreaterEqual(busy[-1], 90, busy)
        self.assertGreater(busy[-1], 2 * found[-1]["weak_percent"])

    def test_scaling_on_faked_hosts_sends_messages(self):
        found = self.scaled("--links", "4x4", "--gradients", "8MiB", compute=5)
        self.assertEqual([row["ranks"] for row in found], [1, 2, 4, 8, 16])
        # Over the network from 8 ranks on.
        self.assertGreater(found[3]["links_ms"], 2 * found[2]["links_ms"])

    def test_processes_are_ranks_and_mpi_is_timed_beside(self):
        prefix = program.mpirun(2)
        found = rows(self.good(*SMALL, "--json", "--compare", "mpi", prefix=prefix))
        self.assertEqual([row["bytes"] for row in found], BYTES)
        for row in found:
            self.check(row)
            self.assertAlmostEqual(row["ratio"], row["mpi_us"] / row["in_place_us"], places=6)
            self.assertIsNone(row["processors_us"])
            self.assertEqual(row["mpi_wrong"], 0)
            self.assertGreater(row["barrier_ns"], 0)
        large = ["bench", "--min", "1MiB", "--max", "1MiB", "--iterations", "5", "--json", "--compare", "mpi"]
        for row in rows(self.good(*large, prefix=prefix)):
            self.assertGreater(row["processors_us"], row["min_us"])  # of both ranks
            self.assertGreater(row["mpi_processors_us"], 0)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
