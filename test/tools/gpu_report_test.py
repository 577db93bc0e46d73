#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/gpu_report.py: what it makes of what gpu_check.sh left, and its table of demands. All figures here are made up.

usage: gpu_report_test.py GPU_REPORT
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPORT = pathlib.Path(sys.argv[1]).resolve()
spec = importlib.util.spec_from_file_location("gpu_report", REPORT)
gpu_report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpu_report)

DOCTOR = {"CUDA": {"found": True, "text": "driver"}, "device cuda:0": {"found": True, "text": "a GPU that is made up"}}
DTYPES = ("bfloat16", "float32")
SANITIZERS = ("memcheck", "synccheck", "racecheck")
DIGITS = "GpuTrain.DigitsAreLearntAsWellAsOnTheProcessor"


def torch_case(model, batch, mode, rate):
    return {"peer": "PyTorch", "model": model, "batch": batch, "mode": mode, "examples_per_second": rate}


def torch_figures(modes):
    """The fastest of PyTorch is 1000 for each case, and compiled_graphed has it."""
    return [torch_case(model, batch, mode, {"eager": 500, "graphed": 800}.get(mode, 1000))
            for model, batch in (("resnet50", 32), ("resnet50", 256), ("mnist_cnn", 128)) for mode in modes]


def device_figures(share=0.9, ratio=1.6):
    optimizer = [{"bench": "optimizer", "dtype": dtype, "share_of_copy": share} for dtype in DTYPES]
    return optimizer + [{"bench": "update", "dtype": dtype, "fused_over_separate": ratio} for dtype in DTYPES]


class Case(unittest.TestCase):
    """A folder as gpu_check.sh leaves it, in which everything that is demanded is met."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        self.runs = {}  # name: kind, code, output
        self.bench("step_resnet50_256", {"examples_per_second": 9000, "steps_as_graphs": 97, "roofline": {
            "share": 0.75, "examples_per_second": 12000, "copy_gb_s": 4300, "product_tflop_s": 2}})
        self.bench("step_resnet50_32", {"examples_per_second": 1600, "steps_as_graphs": 237})
        self.bench("step_mnist_cnn_128", {"examples_per_second": 2500, "steps_as_graphs": 2397})
        self.bench("torch", *torch_figures(["eager", "graphed"]))
        self.bench("torch_compiled", *torch_figures(["compiled_graphed"]))
        self.bench("device", *device_figures())
        for dtype in DTYPES:
            for ranks in (2, 4, 8):
                self.bench(f"all_reduce_{ranks}_{dtype}", {"roofline_percent": 90, "wrong": 0})
        self.bench("step_resnet50_128", {"examples_per_second": 1000})
        self.bench("step_resnet50_128_twice", {"examples_per_second": 990})
        self.bench("step_resnet50_128_again", {"examples_per_second": 1010})
        self.bench("train_digits_2_replicas", {"test_accuracy": 0.98})
        self.bench("train_digits_2_processes", {"test_accuracy": 0.98})
        self.bench("train_digits_servers", {"test_accuracy": 0.98})
        self.bench("train_digits_processor", {"test_accuracy": 0.985})
        for name in ("digits_same_bits", "digits_resumed_bits"):
            self.bench(name, {"files": 4, "equal": True, "others": []})
        self.gtest("ops", "Conformance.Dense", "OK")
        self.gtest("gpu_train", DIGITS, "OK")
        for tool in SANITIZERS:
            self.gtest(f"ops_under_{tool}", "Conformance.Dense", "OK")

    def bench(self, name, *figures, code="0", words=""):
        self.runs[name] = ("bench", code, "".join(json.dumps(figure) + "\n" for figure in figures) + words)

    def gtest(self, name, case, mark, code="0"):
        self.runs[name] = ("test", code, f"[ RUN      ] {case}\n[ {mark:>8} ] {case} (1 ms)\n")

    def demands(self, seconds=400, most=480):
        lines = []
        for name, (kind, code, text) in self.runs.items():
            (self.work / f"{name}.out").write_text(text, encoding="utf-8")
            (self.work / f"{name}.err").write_text("", encoding="utf-8")
            lines.append(f"{name}\t{kind}\t{code}\t1\tcommand\t\n")
        (self.work / "runs").write_text("".join(lines), encoding="utf-8")
        (self.work / "doctor").write_text(json.dumps(DOCTOR), encoding="utf-8")
        done = subprocess.run([sys.executable, str(REPORT), str(self.work), str(self.work / "json"), "lockstep 1",
                               str(seconds), str(most)], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.said = done.stdout
        self.whole = json.loads((self.work / "json").read_text(encoding="utf-8"))
        return self.whole["demands"]

    def unknown(self, name, *words, measured=None):
        row = self.demands()[name]
        self.assertIsNone(row["met"], row)
        self.assertEqual(row["measured"], measured)
        for word in words:
            self.assertIn(word, row["reason"])

    def missed(self, name, measured=None):
        """This one is, and no other."""
        table = self.demands()
        self.assertEqual([key for key, row in table.items() if row["met"] is False], [name], table[name])
        if measured is not None:
            self.assertAlmostEqual(table[name]["measured"], measured)

    def test_what_is_met_is_said_to_be(self):
        table = self.demands()
        self.assertEqual([name for name, row in table.items() if row["met"] is not True], [])
        self.assertEqual([row["reason"] for row in table.values() if row["reason"]], [])
        self.assertAlmostEqual(table["resnet50_256_over_pytorch"]["measured"], 9.0)
        self.assertAlmostEqual(table["two_replicas_resnet50"]["measured"], 990 / 1010)
        self.assertAlmostEqual(table["digits_accuracy"]["measured"], 0.005)
        self.assertIn(f"{len(table)} demands met, 0 missed, 0 not known", self.said)
        for row in table.values():
            self.assertIn(row["demand"], self.said)
        self.assertIn("9000 images/s, 75.0 % of the 12000", self.said)
        self.assertEqual((self.whole["devices"], self.whole["version"], self.whole["seconds"]),
                         ({"cuda:0": "a GPU that is made up"}, "lockstep 1", 400))

    def test_each_that_is_missed_is_said_to_be(self):
        cases = [
            ("resnet50_32_over_pytorch", lambda: self.bench("step_resnet50_32", {"examples_per_second": 1499}), 1.499),
            ("mnist_cnn_128_over_pytorch", lambda: self.bench("step_mnist_cnn_128", {"examples_per_second": 1990}), 1.99),
            ("resnet50_256_aim", lambda: self.step_at_copies_of(4300, 7999), 7999 / 8000),
            ("two_replicas_resnet50", lambda: self.bench("step_resnet50_128_twice", {"examples_per_second": 970}),
             970 / 1010),
            ("digits_accuracy", lambda: self.bench("train_digits_2_replicas", {"test_accuracy": 0.96}), 0.025),
            ("digits_of_servers_accuracy", lambda: self.bench("train_digits_servers", {"test_accuracy": 0.9}), 0.085),
            ("digits_runs_equal", lambda: self.bench("digits_same_bits", {"files": 4, "equal": False}), False),
            ("digits_resumed_equal", lambda: self.bench("digits_resumed_bits", {"files": 4, "equal": False}), False),
            ("tests", lambda: self.gtest("ops", "Conformance.Dense", "FAILED", code="1"), None),
        ] + [(tool, lambda t=tool: self.gtest(f"ops_under_{t}", "Conformance.Dense", "OK", code="1"), None)
             for tool in SANITIZERS]
        for name, change, measured in cases:
            with self.subTest(name):
                self.setUp()
                change()
                if name in SANITIZERS:  # it is a test, too
                    self.assertEqual([key for key, row in self.demands().items() if row["met"] is False],
                                     ["tests", name])
                else:
                    self.missed(name, measured)
                self.assertIn("MISSED", self.said)

    def step_at_copies_of(self, gb_s, rate):
        self.bench("step_resnet50_256", {"examples_per_second": rate, "steps_as_graphs": 97, "roofline": {
            "share": 0.75, "examples_per_second": 12000, "copy_gb_s": gb_s, "product_tflop_s": 2}})

    def test_the_aim_is_in_proportion_to_the_bandwidth(self):
        self.step_at_copies_of(2150, 6000)
        self.assertAlmostEqual(self.demands()["resnet50_256_aim"]["measured"], 1.5)

    def test_shares_and_ratios_of_the_device_are_judged_each(self):
        self.bench("all_reduce_8_bfloat16", {"roofline_percent": 84.9, "wrong": 0})
        self.missed("all_reduce_8_bfloat16", 0.849)
        self.bench("all_reduce_8_bfloat16", {"roofline_percent": 90, "wrong": 0})
        figures = device_figures()
        figures[1]["share_of_copy"] = 0.84
        self.bench("device", *figures)
        self.missed("optimizer_float32", 0.84)
        figures = device_figures()
        figures[2]["fused_over_separate"] = 1.49
        self.bench("device", *figures)
        self.missed("fused_update_bfloat16", 1.49)

    def test_sums_that_are_wrong_are_not_measured(self):
        self.bench("all_reduce_4_float32", {"roofline_percent": 90, "wrong": 3}, code="70")
        self.unknown("all_reduce_4_float32", "3 elements of the sums are wrong")

    def test_mirrors_that_differ_are_missed(self):
        self.gtest("gpu_train", DIGITS, "FAILED", code="1")
        table = self.demands()
        self.assertEqual([key for key, row in table.items() if row["met"] is False], ["digits_mirrors_equal", "tests"])
        self.setUp()
        self.bench("train_digits_2_replicas", code="1", words="mirrors are no longer equal")
        table = self.demands()
        self.assertIs(table["digits_mirrors_equal"]["met"], False)
        self.assertIsNone(table["digits_accuracy"]["met"])

    def test_without_pytorch_nothing_is_said_of_it(self):
        for name in ("torch", "torch_compiled"):
            self.bench(name, code="77", words="skipped: PyTorch is not installed")
        for name in ("resnet50_256_over_pytorch", "resnet50_32_over_pytorch", "mnist_cnn_128_over_pytorch"):
            self.unknown(name, "PyTorch is not installed")
        self.assertIs(self.demands()["resnet50_256_aim"]["met"], True)

    def test_a_mode_of_pytorch_that_is_missing_may_have_been_the_fastest(self):
        self.bench("torch_compiled", code="124")
        self.unknown("resnet50_256_over_pytorch", "compiled_graphed", "timed out", measured=9000 / 800)
        self.assertIn("not known", self.said)
        # Slower than the modes that are there is missed, whatever the others would be.
        self.bench("step_resnet50_256", {"examples_per_second": 900})
        row = self.demands()["resnet50_256_over_pytorch"]
        self.assertIs(row["met"], False)
        self.assertAlmostEqual(row["measured"], 900 / 800)

    def test_a_case_of_pytorch_that_failed_is_not_taken_for_slow(self):
        cases = torch_figures(["compiled_graphed"])
        cases[1] = {"model": "resnet50", "batch": 256, "mode": "compiled_graphed", "error": "RuntimeError: no memory"}
        self.bench("torch_compiled", *cases, code="1")
        self.unknown("resnet50_256_over_pytorch", "no memory", measured=9000 / 800)
        self.assertIs(self.demands()["resnet50_32_over_pytorch"]["met"], True)

    def test_what_had_no_time_or_failed_is_not_measured_and_says_why(self):
        self.bench("step_resnet50_256", code="late")
        self.unknown("resnet50_256_aim", "no time left")
        self.bench("step_resnet50_32", code="1", words="bench_step: too little memory")
        self.unknown("resnet50_32_over_pytorch", "failed", "too little memory")
        self.bench("device", *device_figures()[:2], code="124")
        table = self.demands()
        self.assertIs(table["optimizer_float32"]["met"], True, "what was printed before counts")
        self.assertIsNone(table["fused_update_bfloat16"]["met"])
        self.assertIn("timed out", table["fused_update_bfloat16"]["reason"])
        self.gtest("gpu_train", DIGITS, "OK", code="late")
        self.unknown("tests", "gpu_train", "no time left")
        del self.runs["step_resnet50_128_twice"]
        self.unknown("two_replicas_resnet50", "was not run")

    def test_without_the_sanitizer_its_demand_is_not_known_and_the_tests_are(self):
        for tool in SANITIZERS:
            self.runs[f"ops_under_{tool}"] = ("test", "absent", "")
        table = self.demands()
        for tool in SANITIZERS:
            self.assertIsNone(table[tool]["met"])
            self.assertIn("not installed", table[tool]["reason"])
        self.assertIs(table["tests"]["met"], True)

    def test_numbers_that_are_none_are_not_measured(self):
        self.bench("step_resnet50_256", {"examples_per_second": None})
        self.unknown("resnet50_256_over_pytorch", "examples_per_second")
        self.bench("train_digits_2_replicas", {"test_accuracy": None})
        self.unknown("digits_accuracy", "test_accuracy")

    def test_time_that_was_short_is_no_defect_of_what_was_cut_off(self):
        self.runs["ops_under_memcheck"] = ("test", "124", "[ RUN      ] Conformance.Dense\n")
        self.unknown("memcheck", "ops_under_memcheck timed out")
        self.assertIs(self.demands()["tests"]["met"], True)
        self.assertEqual(self.demands()["seconds"]["met"], None)
        self.gtest("gpu_train", DIGITS, "FAILED", code="124")
        self.assertIs(self.demands()["tests"]["met"], False)

    def test_steps_that_were_queued_and_processes_that_learn_less_are_missed(self):
        self.bench("step_mnist_cnn_128", {"examples_per_second": 2500, "steps_as_graphs": 0})
        self.missed("steps_are_graphs")
        self.setUp()
        self.bench("train_digits_2_processes", {"test_accuracy": 0.9})
        self.missed("digits_of_processes_accuracy", 0.085)

    def test_too_long_is_missed(self):
        self.assertIs(self.demands(seconds=481)["seconds"]["met"], False)

    def test_a_part_alone_has_its_own_demands(self):
        speed = {name: run for name, run in self.runs.items()
                 if name.startswith(("step_", "torch", "all_reduce_")) or name == "device"}
        both, self.runs = self.runs, speed
        of_speed = self.demands()
        self.runs = {name: run for name, run in both.items() if name not in speed}
        of_correctness = self.demands()
        self.assertEqual(of_speed.keys() & of_correctness.keys(), {"seconds"})
        self.runs = both
        self.assertEqual(of_speed.keys() | of_correctness.keys(), self.demands().keys())
        self.assertEqual([row for row in (*of_speed.values(), *of_correctness.values()) if row["met"] is not True], [])

    def test_shards_are_one_run_whose_result_is_the_worst(self):
        del self.runs["ops"]
        self.gtest("ops.0of3", "Conformance.Dense", "OK")
        self.gtest("ops.1of3", "Conformance.Pools", "FAILED", code="1")
        self.gtest("ops.2of3", "Conformance.Losses", "OK")
        self.assertIs(self.demands()["tests"]["met"], False)
        ops = self.whole["tests"]["ops"]
        self.assertEqual((ops["result"], ops["exit_code"]), ("failed", 1))
        self.assertEqual(ops["cases"], {"Conformance.Dense": "passed", "Conformance.Pools": "failed",
                                        "Conformance.Losses": "passed"})
        self.assertNotIn("ops.1of3", self.whole["tests"])

    def test_a_shard_that_is_missing_and_no_test_at_all_are_failures(self):
        del self.runs["ops"]
        self.gtest("ops.0of2", "Conformance.Dense", "OK")
        self.assertIs(self.demands()["tests"]["met"], False)
        self.assertEqual(self.whole["tests"]["ops"]["result"], "failed: 1 of 2 shards are missing")
        del self.runs["ops.0of2"]
        self.runs["ops"] = ("test", "0", "[  PASSED  ] 0 tests.\n")
        self.assertIs(self.demands()["tests"]["met"], False)
        self.assertEqual(self.whole["tests"]["ops"]["result"], "failed: no test ran")

    def racecheck(self, *kernels, mark="OK"):
        self.gtest("ops_under_racecheck", "Conformance.Dense", mark, code="1")
        kind, code, text = self.runs["ops_under_racecheck"]
        text += "".join(f"========= Error: Race reported between Write access at {kernel}+0x10\n"
                        f"=========     and Read access at {kernel}+0x20 [9 hazards]\n" for kernel in kernels)
        self.runs["ops_under_racecheck"] = (kind, code, text)
        return self.demands()["racecheck"]["met"]

    def test_a_race_inside_a_kernel_of_a_library_is_told_and_no_failure(self):
        kernel = "sm90_xmma_dgrad_implicit_gemm_kernel__5x_cudnn"
        self.assertIs(self.racecheck(kernel), True)
        self.assertIn(f"inside a kernel of NVIDIA's libraries, {kernel}", self.said)
        self.assertEqual(self.whole["tests"]["ops_under_racecheck"]["hazards_of_libraries"], [kernel])
        self.assertIs(self.racecheck(kernel, "batch_norm_sums"), False)
        self.assertIn("a race is reported in batch_norm_sums", self.said)
        self.assertIs(self.racecheck("batch_norm_sums"), False)
        self.assertIs(self.racecheck(), False)
        self.assertIs(self.racecheck(kernel, mark="FAILED"), False)
        for words in ("========= Internal Sanitizer Error: it failed.", "========= Program hit CUDA_ERROR_ASSERT",
                      "========= Error: Invalid read"):
            self.racecheck(kernel)
            kind, code, text = self.runs["ops_under_racecheck"]
            self.runs["ops_under_racecheck"] = (kind, code, text + words + "\n")
            self.assertIs(self.demands()["racecheck"]["met"], False, words)

    def test_what_failed_is_printed_in_few_lines(self):
        self.gtest("ops", "Conformance.Dense", "FAILED", code="1")
        kind, code, text = self.runs["ops"]
        words = "\n".join(f"word {i}" for i in range(100))
        self.runs["ops"] = (kind, code, text.replace("[   FAILED", words + "\n[   FAILED"))
        self.bench("step_resnet50_32", code="1", words="bench_step: too little memory")
        self.demands()
        self.assertIn("failed: ops: Conformance.Dense\n    word 0\n", self.said)
        self.assertNotIn("word 50", self.said)
        self.assertIn("failed: step_resnet50_32\n    bench_step: too little memory", self.said)
        self.assertLess(len(self.said), 12000)


class Compare(unittest.TestCase):
    """--compare of two folders of checkpoints."""

    def compared(self, first, second):
        with tempfile.TemporaryDirectory() as folder:
            for name, files in (("first", first), ("second", second)):
                for path, text in files.items():
                    file = pathlib.Path(folder) / name / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, str(REPORT), "--compare", f"{folder}/first", f"{folder}/second"],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)

    def test_equal_weights_are_equal_whatever_stands_beside_them(self):
        shards = {"step-1/shard-0.safetensors": "weights", "step-1/shard-1.safetensors": "more"}
        self.assertEqual(self.compared({**shards, "step-1/manifest.json": "at noon"}, {**shards, "lock": ""}),
                         {"files": 2, "equal": True, "others": []})

    def test_other_weights_or_none_are_not(self):
        one = {"step-1/shard-0.safetensors": "weights"}
        found = self.compared(one, {"step-1/shard-0.safetensors": "other"})
        self.assertEqual((found["equal"], found["others"]), (False, ["step-1/shard-0.safetensors"]))
        found = self.compared(one, {**one, "step-2/shard-0.safetensors": "weights"})
        self.assertFalse(found["equal"])
        self.assertIn("error", self.compared(one, {}))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
