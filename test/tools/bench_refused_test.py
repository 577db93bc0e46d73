#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `lockstep bench` refuses: one line, an exit code, and nothing is measured.

usage: bench_refused_test.py LOCKSTEP [NAMES OF TESTS]
"""
import pathlib
import sys

import program


class Refused(program.Case):
    def test_threads_that_map_more_than_the_system_allows_are_refused(self):
        most = int(pathlib.Path("/proc/sys/vm/max_map_count").read_text())
        if most > 2 * 250 * 250:
            self.skipTest(f"a process may map {most} times")
        for flags in ([], ["--regret"], ["--scaling"]):
            program.refused(self, ["bench", "--ranks", "250", *flags], 74,
                            ["250 ranks of one process", f"{most} (vm.max_map_count)", "--ranks "])
        if most < 4 * 150 * 150:  # reproducible sums take twice as many
            program.refused(self, ["bench", "--ranks", "150", "--reproducible"], 74, ["150 ranks of one process", "--ranks "])

    def test_mpi_has_no_types_of_16_bits(self):
        program.refused(self, ["bench", "--compare", "mpi", "--dtype", "bfloat16"], 64,
                        ["MPI_Allreduce", "knows no bfloat16"], prefix=program.mpirun(2))

    def test_ranks_on_devices_are_of_one_process(self):
        program.refused(self, ["bench", "--device", "cpu:0"], 64,
                        ["--device times replicas of one process", "2 processes were started"],
                        prefix=program.mpirun(2))

    def test_bad_flags_are_one_line(self):
        for arguments, words in (
                (["--min", "4Ki"], ["--min", "must be a size", "64KiB", "'4Ki'"]),
                (["--min", "2MiB", "--max", "1MiB"], ["--min 2MiB is more than --max 1MiB"]),
                (["--factor", "1"], ["--factor", "from 1.001"]),
                (["--factor", "1.0000000001"], ["--factor", "from 1.001"]),
                (["--dtype", "int8"], ["--dtype", "float32, float64, float16, bfloat16, int32 or int64"]),
                (["--op", "xor"], ["--op", "sum, mean, min, max or product"]),
                (["--op", "mean", "--dtype", "int32"], ["mean needs floating point"]),
                (["--algorithm", "fast"], ["'fast'", "direct", "ring"]),
                (["--algorithm", "auto,fast"], ["'fast'", "direct", "ring"]),
                (["--algorithm", "direct:..64k,fast:1g.."], ["'fast'", "direct", "ring"]),
                (["--algorithm", "direct:..64k,ring"], ["two things", "ring:FROM..TO"]),
                (["--algorithm", "direct:..64k,ring:32k.."], ["both want 32 KiB"]),
                (["--algorithm", "direct:64k"], ["has no range"]),
                (["--collective", "reduce_scatter", "--algorithm", "ring"], ["ring makes all-reduces only"]),
                (["--collective", "all_gather", "--op", "max"], ["all_gather reduces nothing", "--op has no effect"]),
                (["--collective", "broadcast", "--algorithm", "ring"], ["ring makes all-reduces only", "broadcast"]),
                (["--collective", "scatter"], ["--collective", "all_gather or broadcast"]),
                (["--overlap", "--collective", "broadcast"], ["--overlap is of all_reduce"]),
                (["--check", "some"], ["--check", "all, last or none"]),
                (["--json", "--csv"], ["one of them"]),
                (["--ranks", "0.5"], ["--ranks", "whole number"]),
                (["--regret", "--overlap"], ["--regret, --overlap", "one of them"]),
                (["--reproducible", "--overlap"], ["--overlap and --reproducible", "one of them"]),
                (["--reproducible", "--dtype", "int32"], ["--reproducible is of sums and means of floating point"]),
                (["--reproducible", "--op", "product"], ["--reproducible is of sums and means of floating point"]),
                (["--reproducible", "--collective", "broadcast"], ["--reproducible is of all_reduce"]),
                (["--regret", "--collective", "reduce_scatter"], ["--regret is of all_reduce"]),
                (["--overlap", "--ranks", "1"], ["--overlap needs more than one rank"]),
                (["--regret", "--plot", "x.svg"], ["--plot", "bench/regrets.py"]),
                (["--scaling", "--overlap"], ["--scaling goes without"]),
                (["--scaling", "--gradients", "resnet18"], ["--gradients", "resnet50", "'resnet18'"]),
                (["--scaling", "--links", "128x8"], ["1024 ranks", "at most 64"]),
                (["--scaling", "--links", "1x4", "--ranks", "8"], ["1x4 has 4 ranks, not 8"]),
                (["--links", "1x8"], ["--links is for --scaling"]),
                (["--gradients", "resnet50"], ["--gradients is for --scaling"]),
                (["--compute-ms", "350"], ["--compute-ms is for --scaling"]),
                (["--batch", "128"], ["--batch is for --scaling"]),
                (["--scaling", "--min", "4KiB"], ["--scaling", "--min has no effect"]),
                (["--scaling", "--max", "4KiB"], ["--scaling", "--max has no effect"]),
                (["--scaling", "--factor", "2"], ["--scaling", "--factor has no effect"]),
                (["--scaling", "--warmup", "2"], ["--scaling", "--warmup has no effect"]),
                (["--scaling", "--links", "1x4", "--assumed"], ["--links", "--assumed has no effect"]),
                (["--transport", "pigeon"], ["--transport", "auto, tcp or mpi"]),
                (["--interface", "eth77"], ["eth77"]),
                (["--transport", "mpi", "--ports", "40000"], ["ports", "transport tcp"]),
                (["--compare", "nccl"], ["--compare", "mpi"]),
                (["--compare", "mpi"], ["--compare mpi"]),
                (["--device", "cuda:99"], ["there is no device cuda:99", "this machine has cpu:0"]),
                (["--device", "tpu"], ["there is no device tpu:0"]),
                (["--device", "cpu:0", "--devices", "cpu:0,cpu:0"], ["--device excludes --devices"]),
                (["--devices", "cpu:0"], ["1 ranks on cpu:0: give 2 to 16"]),
                (["--device", "cpu:0", "--ranks", "17"], ["17 ranks", "give 2 to 16"]),
                (["--devices", "cpu:0,cpu:0", "--ranks", "2"], ["--devices gives each rank a device", "--ranks"]),
                (["--copy", "1MiB"], ["--copy is for --device"]),
                (["--device", "cpu:0", "--regret"], ["--device goes without --regret"]),
                (["--device", "cpu:0", "--scaling"], ["--device goes without --scaling"]),
                (["--device", "cpu:0", "--op", "max"], ["--device times the sums of all_reduce", "max"]),
                (["--devices", "cpu:0,cpu:0", "--collective", "broadcast"], ["--devices times the sums of all_reduce", "broadcast"]),
                (["--device", "cpu:0", "--compare", "mpi"], ["--compare mpi", "NCCL is timed beside GPUs"]),
                (["--device", "cpu:0", "--warmup", "2"], ["--warmup has no effect"]),
                (["--device", "cpu:0", "--ports", "40000"], ["between hosts", "--ports", "no effect"]),
                (["--device", "cpu:0", "--dtype", "float16"], ["--dtype float16", "cpu:0 has no kernels"]),
                (["--device", "cpu:0", "--algorithm", "fast"], ["'fast'", "direct", "ring"]),
                (["--plot", ""], ["--plot", "the name of a file", "''"]),
                (["--plot", "a.png"], ["--plot", "SVG", "a.svg", "'a.png'"]),
                (["--algorithm", "all,ring"], ["--algorithm all,ring", "all stands alone"]),
                (["--algorithm", "ring,"], ["--algorithm 'ring,'", "a name is missing"]),
                (["--frobnicate"], ["unknown flag '--frobnicate'"])):
            program.refused(self, ["bench", *arguments], 64, words)

    def test_a_plot_that_cannot_be_written_is_said(self):
        """Before anything is measured."""
        for prefix in ((), *([program.mpirun(2)] if program.HAVE_MPI else [])):
            program.refused(self, ["bench", "--json", "--plot", "/proc/none.svg"], 74,
                            ["cannot write /proc/none.svg"], prefix=prefix)
        file = self.top / "bench.svg"
        program.refused(self, ["bench", "--collective", "reduce_scatter", "--algorithm", "ring", "--plot", file], 64,
                        ["ring"])
        self.assertFalse(file.exists())

    def test_more_than_memory_holds_is_refused_at_once(self):
        """Nothing is taken, measured or printed before."""
        some = ["--min", "800GiB", "--max", "900GiB"]
        for prefix in ((), *([program.mpirun(2)] if program.HAVE_MPI else [])):
            for flags in ([], ["--algorithm", "all"], ["--collective", "reduce_scatter"], ["--regret"], ["--overlap"],
                          *([["--compare", "mpi"]] if prefix else [])):
                program.refused(self, ["bench", *some, *flags], 74, ["900GiB", "2 ranks of a host", "GiB are free"],
                                prefix=prefix)
            program.refused(self, ["bench", "--scaling", "--gradients", "800GiB"], 74,
                            ["gradients of 214748364800 numbers", "are free"], prefix=prefix)

    def test_threads_in_several_processes_are_refused(self):
        program.refused(self, ["bench", "--ranks", "2"], 64, ["--ranks", "2 processes"], prefix=program.mpirun(2))


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
