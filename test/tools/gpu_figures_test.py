#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What bench_device, bench_step and `lockstep bench --device` print is what tools/gpu_report.py reads: they run on the
processor, in small.

usage: gpu_figures_test.py GPU_REPORT BENCH_DEVICE BENCH_STEP LOCKSTEP
"""
import importlib.util
import pathlib
import subprocess
import sys
import unittest

REPORT, DEVICE, STEP, LOCKSTEP = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:5])
spec = importlib.util.spec_from_file_location("gpu_report", REPORT)
gpu_report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_report)

SMALL_DEVICE = ["--device", "cpu:0", "--copy-mib", "1", "--parameters", "5000", "--turns", "2", "--batch-ms", "0.1"]
SMALL_BENCH = ["bench", "--device", "cpu:0", "--min", "1MiB", "--max", "1MiB", "--algorithm", "direct", "--assumed",
               "--iterations", "1", "--copy", "1MiB"]
SMALL_STEP = ["--whole", "--model", "mlp", "--batch", "16", "--warm-up", "4", "--steps", "12", "--group", "4",
              "--product", "64", "--copy-mib", "1"]


def output(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"{program}: {done.stderr}")
    return done.stdout


class Figures(unittest.TestCase):
    def test_of_a_device_are_read(self):
        text = {"device": output(DEVICE, *SMALL_DEVICE, "--json")}
        for dtype in ("bfloat16", "float32"):
            for ranks in ("2", "4", "8"):
                text[f"all_reduce_{ranks}_{dtype}"] = output(LOCKSTEP, *SMALL_BENCH, "--ranks", ranks, "--dtype", dtype,
                                                             "--json")
        runs = {"test": {}, "bench": {name: {"result": "passed", **gpu_report.objects_of(said)}
                                      for name, said in text.items()}}
        table = gpu_report.judged(runs, 1, 10)
        measured = {name for name, row in table.items() if isinstance(row["measured"], float)}
        wanted = {name for name in table if name.startswith(("all_reduce_", "optimizer_", "fused_update_"))}
        self.assertEqual((len(wanted), measured), (10, wanted))
        for name in wanted:
            self.assertGreater(table[name]["measured"], 0)

    def test_of_steps_are_read(self):
        for flags in (["--device", "cpu:0", "--layer-steps", "2"], ["--devices", "cpu:0,cpu:0", "--layer-steps", "0"]):
            found = gpu_report.objects_of(output(STEP, *SMALL_STEP, *flags, "--json"))["figures"]
            runs = {"test": {}, "bench": {"step_resnet50_256": {"result": "passed", "figures": found}}}
            copied = found[0]["roofline"]["copy_gb_s"]
            self.assertAlmostEqual(gpu_report.judged(runs, 1, 10)["resnet50_256_aim"]["measured"],
                                   found[0]["examples_per_second"] / (8000 * copied / 4300))
            self.assertGreater(found[0]["roofline"]["share"], 0)
            self.assertEqual(found[0]["replicas"], 1 + ("--devices" in flags))

    def test_for_people_say_the_same(self):
        self.assertIn("fused is", output(DEVICE, *SMALL_DEVICE))
        text = output(STEP, *SMALL_STEP)
        for words in ("forward  dense1", "share of that reached", "a large product"):
            self.assertIn(words, text)

    def test_what_cannot_be_is_one_line(self):
        for command in ([DEVICE, "--device", "cpu:7"], [STEP, "--device", "cpu:7"],
                        [DEVICE, "--device", "cpu:0", "--dtypes", "float17"],
                        [STEP, "--whole", "--warm-up", "2", "--steps", "5"]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            self.assertEqual((done.returncode, done.stdout), (1, ""), command)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
