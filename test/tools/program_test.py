#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What people may rely on when they use the program: what it prints and where, its exit codes, what it says
about bad input, predictions, the file of flags.

usage: program_test.py LOCKSTEP [NAMES OF TESTS]
"""
import concurrent.futures
import csv
import io
import json
import re
import shutil
import sys
import time

import program
from program import COLLECTIVE, Case, ENDLESS, MLP, SMALL, idx_folder, mpirun, refused, run, whole


class Output(Case):
    FIELDS = {"model": str, "strategy": str, "replicas": int, "batch": int, "steps": int, "seconds": float,
              "examples_per_second": float, "loss": float, "test_accuracy": float, "test_top5": float, "algorithm": str,
              "reason": str}

    def check(self, done, replicas):
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.strip().splitlines()
        self.assertEqual(len(lines), 1, done.stdout)
        result = json.loads(lines[0])
        for field, kind in self.FIELDS.items():
            self.assertIsInstance(result[field], kind, field)
        self.assertEqual((result["model"], result["batch"], result["steps"], result["replicas"]),
                         ("mlp", 50, 6, replicas))
        self.assertGreater(result["examples_per_second"], 0)
        self.assertEqual(done.stderr.count("all-reduce: "), 1)
        algorithm = result["algorithm"] if replicas > 1 else "none for one replica"
        self.assertRegex(done.stderr, rf"\nall-reduce: {algorithm}, update (fused|separate)[; ]")

    def test_json_is_all_of_standard_output(self):
        self.check(run("train", *SMALL, "--replicas", "2", "--json"), 2)

    def test_of_several_processes_only_the_chief_prints(self):
        self.check(run("train", *SMALL, *COLLECTIVE, "--json", prefix=mpirun()), 2)

    def test_without_json_standard_output_is_empty(self):
        done = self.good("train", *SMALL)
        self.assertEqual(done.stdout, "")
        self.assertIn("accuracy", done.stderr)

    def test_without_test_data_a_line_says_why_there_is_no_accuracy(self):
        folder = idx_folder(self.top / "data", 28)
        flags = ["train", *MLP, "--epochs", "1", "--data", folder, "--batch", "20", "--json"]
        self.assertNotIn("no test accuracy", self.good(*flags).stderr)
        for file in folder.glob("t10k-*"):
            file.unlink()
        done = self.good(*flags)
        self.assertIsNone(json.loads(done.stdout)["test_accuracy"])
        lines = [line for line in done.stderr.splitlines() if "no test accuracy" in line]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(f"because {folder} has no test data", lines[0])

    def test_help_says_which_models_can_be_computed_again(self):
        said = " ".join(self.good("train", "--help").stdout.split())
        named = re.search(r"more time \((.*?) have blocks\)", said)[1].split(" and ")
        for model in re.search(r" model: ([a-z0-9_, ]+) ", said)[1].split(", "):
            done = run("train", "--model", model, "--data", "random", "--batch", "2", "--steps", "0", "--epochs", "0", "--threads", "1", "--recompute")
            self.assertEqual(done.returncode == 0, model in named, f"{model}: {done.stderr}")

    def test_random_data_have_no_accuracy(self):
        result = self.result(*MLP, "--data", "random", "--steps", "5")
        self.assertIsNone(result["test_accuracy"])
        self.assertGreater(result["examples_per_second"], 0)
        self.assertEqual(result["steps"], 5)

    def test_log_holds_json_lines_of_steps_evaluations_and_checkpoints(self):
        self.good("train", *SMALL, "--log", self.top / "log", "--checkpoints", self.top / "c", "--every", "4")
        events = [json.loads(line) for line in (self.top / "log").read_text().splitlines()]
        by_kind = {}
        for event in events:
            by_kind.setdefault(event["event"], []).append(event)
        self.assertEqual([e["step"] for e in by_kind["step"]], list(range(1, 7)))
        for event in by_kind["step"]:
            for field in ("loss", "accuracy", "rate", "examples_per_second", "rank0_waited_ms"):
                self.assertIsInstance(event[field], (int, float))
        self.assertEqual([e["step"] for e in by_kind["checkpoint"]], [4, 6])
        start, = by_kind["start"]
        self.assertEqual((start, start["model"], start["batch"], start["replicas"]), (events[0], "mlp", 50, 1))
        self.assertIn("sgd", start["optimizer"])
        self.assertEqual([(e["epoch"], e["step"]) for e in by_kind["evaluation"]], [(1, 6)])

    def test_placement_says_where_each_variable_lies(self):
        lines = self.good("train", *SMALL, "--replicas", "2", "--placement").stderr.splitlines()
        at = next(i for i, line in enumerate(lines) if line.split() == ["variable", "shape", "bytes", "bucket", "device"])
        rows = [line.split() for line in lines[at + 1:]]
        self.assertEqual([row[0] for row in rows[:7]],
                         [f"dense{i}.{part}" for i in (3, 2, 1) for part in ("weight", "bias")] + ["all"])
        self.assertEqual(sum(int(row[2]) for row in rows[:6]), int(rows[6][1]))

    def test_help_and_version(self):
        self.assertRegex(self.good("--version").stdout, r"^lockstep \d+\.\d+\.\d+\n$")
        self.assertIn("train", self.good("--help").stdout)
        flags = {"train": ["--batch", "64", "--rate", "0.02", "--schedule", "cosine", "--keep", "3", "--deadline",
                           "--config", "per process"],
                 "predict": ["--checkpoints", "--batch", "100", "--logits", "REQUIRED"],
                 "plan": ["--topology", "128x8", "--svg", "--size", "1MiB", "--algorithm"],
                 "bench": ["--min", "KiB", "--algorithm", "(sum, mean, min, max or product; default: sum)"],
                 "doctor": ["--json"]}
        for command, words in flags.items():
            text = self.good(command, "--help").stdout
            for word in words:
                self.assertIn(word, text, command)
            for line in text.splitlines():   # a name, then whether it takes a number or a text; the rest is prose
                if line.startswith("  -"):
                    self.assertRegex(line, r"^  (-[a-z], )?--[a-z0-9-]+(, --[a-z0-9_-]+)*( (NUMBER|TEXT)( REQUIRED)?)?( |$)")


class Config(Case):
    def write(self, value):
        path = self.top / "flags.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def test_values_are_used_and_flags_win(self):
        file = self.write({"model": "mlp", "examples": 300, "epochs": 1, "batch": 60, "threads": 1, "rate": 1e-2,
                           "replicas": 2, "json": True, "nesterov": False})
        for order in (["--config", file, "--batch", "30"], ["--batch", "30", f"--config={file}"]):
            done = self.good("train", *order)
            result = json.loads(done.stdout)
            self.assertEqual((result["batch"], result["steps"], result["replicas"]), (30, 10, 2))
        self.assertEqual(self.good("train", "--config", file, "--json=false").stdout, "")

    def test_a_size_may_be_a_number(self):
        """As on the command line: of --bucket MiB, of --memory-limit bytes."""
        flags = {"model": "mlp", "examples": 300, "epochs": 1, "batch": 60, "threads": 1, "replicas": 2}
        for size, limit in ((4, 2000000000), ("4MiB", "2GB")):
            with self.subTest(size):
                done = self.good("train", "--config", self.write({**flags, "bucket": size, "memory-limit": limit}), "-v")
                self.assertIn("buckets: 1 of up to 4 MiB", done.stderr)
        refused(self, ["train", "--config", self.write({**flags, "memory-limit": 2000})], 74, ["limit is 1.95 KiB"])

    def test_what_is_wrong_with_the_file_is_one_line(self):
        rows = [({"epocs": 1}, "epocs"), ({"epochs": "1"}, "a number"), ({"epochs": [1]}, "a number"),
                ({"epochs": None}, "a number"), ({"epochs": 1.5}, "whole number"), ({"epochs": -1}, "whole number"),
                ({"model": 3}, "a string"), ({"bucket": True}, "a number or a string"), ({"bucket": -4}, "a size"),
                ({"json": 1}, "true or false"), ({"config": "x"}, "config"),
                ({"help": True}, "help"), ("[1]", "no JSON object"), ("{", "no JSON object"),
                ("", "no JSON object"), ('{"epochs": 6,\n }', "line 2, column 2"),
                ('{"epochs": 6, "epochs": 7}', '"epochs" stands twice')]
        for value, word in rows:
            with self.subTest(value):
                refused(self, ["train", "--config", self.write(value)], 64, [word])
        self.good("train", "--config", self.top / "none", "--help")
        refused(self, ["train", "--config", self.top / "none"], 74, ["none", "cannot be opened"])
        refused(self, ["train", "--config", self.top], 74, ["is not a file, but a folder"])

    def test_a_value_that_is_not_used_may_be_anything(self):
        file = self.write({"model": "mlp", "examples": 300, "epochs": -7, "batch": "many", "rate": {}, "json": 3,
                           "threads": 1})
        flags = ["--epochs", "1", "--batch=50", "--rate", "0.01"]
        self.assertEqual(json.loads(self.good("train", *flags, "--json", "--config", file).stdout)["steps"], 6)
        refused(self, ["train", *flags, "--config", file], 64, ["flags.json", '"json"', "true or false"])

    def test_a_value_that_may_not_be_is_said_with_the_files_name(self):
        rows = [({"epochs": -7}, ['flags.json: "epochs"', "'-7'"]), ({"optimizer": "x"}, ['flags.json: "optimizer"', "'x'"]),
                ({"model": "x"}, ["'x'", "flags.json gives model"]), ({"momentum": 1.5}, ["1.5", "flags.json gives momentum"]),
                ({"examples": 30, "batch": 50}, ["--batch 50", "flags.json gives", "batch"])]
        for value, words in rows:
            with self.subTest(value):
                refused(self, ["train", "--config", self.write(value)], 64, words)
        file = self.write({"examples": 300, "momentum": 1.5})
        done = run("train", *SMALL, "--momentum", "2", "--config", file)
        self.assertEqual((done.returncode, "flags.json" in done.stderr), (64, False), done.stderr)


class BadInput(Case):
    def table(self, rows, command=("train", *SMALL)):
        def one(row):
            arguments, code, words = row
            folder = self.top / f"checkpoints{id(row)}"
            where = ["--checkpoints", folder] if command[:1] == ("train",) and "--checkpoints" not in arguments else []
            try:
                refused(self, [*command, *where, *arguments], code, words)
                self.assertFalse(folder.exists(), "a folder is left")
            except AssertionError as error:
                return f"{arguments}: {error}"
            return None

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            wrong = [text for text in pool.map(one, rows) if text]
        self.assertFalse(wrong, "\n".join(wrong))

    def test_flags(self):
        huge = "99999999999999999999"
        self.table([
            (["--bogus", "3"], 64, ["--bogus", "lockstep train --help"]),
            (["--bogus=3"], 64, ["--bogus", "lockstep train --help"]),
            (["-x"], 64, ["-x", "lockstep train --help"]),
            (["extra"], 64, ["extra", "lockstep train --help"]),
            (["--batch"], 64, ["--batch: needs a value, a whole number from 1; "]),
            (["--epochs"], 64, ["--epochs: needs a value, a whole number from 0; "]),
            (["--rate"], 64, ["--rate: needs a value, a number above 0; "]),
            (["--replicas"], 64, ["--replicas: needs a value, a whole number from 1 to 256; "]),
            (["--optimizer"], 64, ["--optimizer: needs a value: sgd, adam, adamw or lars; "]),
            (["--data"], 64, ["--data: needs a value: folder of IDX files"]),
            (["--model", "mnist_cn"], 64, ["mnist_cn", "did you mean mnist_cnn?", "lenet5"]),
            (["--strategy", "x"], 64, ["x", "mirrored, collective_all_reduce or parameter_server"]),
            (["--optimizer", "x"], 64, ["x", "sgd, adam, adamw or lars"]),
            (["--label-smoothing", "1"], 64, ["--label-smoothing 1", "below 1"]),
            (["--label-smoothing", "-0.1"], 64, ["--label-smoothing -0.1", "at least 0"]),
            (["--label-smoothing", "nan"], 64, ["--label-smoothing nan", "below 1"]),
            (["--label-smoothing", "x"], 64, ["--label-smoothing", "x"]),
            (["--trust", "0"], 64, ["--trust", "'0'", "above 0"]),
            (["--schedule", "x"], 64, ["x", "constant, cosine"]),
            (["--schedule", "cosine:warmup=x"], 64, ["warmup", "number"]),
            (["--device", "x"], 64, ["x", "cpu:0, reference:0"]),
            (["--device", "cuda:99"], 64, ["there is no device cuda:99", "cpu:0, reference:0"]),
            (["--devices", "cpu,x"], 64, ["x", "cpu:0, reference:0"]),
            (["--devices", "cpu,cpu", "--replicas", "2"], 64, ["--devices", "--replicas"]),
            (["--memory-fraction", "1.5"], 64, ["--memory-fraction", "above 0, at most 1"]),
            (["--gpu-memory", "lots"], 64, ["--gpu-memory", "must be a size", "'lots'"]),
            (["--gpu-exchange", "x"], 64, ["x", "auto, ipc or host"]),
            (["--gpu-exchange", "ipc"], 64, ["gpu exchange ipc", "GPUs of several processes", "leave it out"]),
            (["--graphs", "x"], 64, ["x", "auto, on or off"]),
            (["--graphs", "on"], 64, ["graphs: on was asked for", "the replicas are on processors", "auto"]),
            (["--graphs", "on", "--steps-ahead", "0"], 64, ["--graphs on", "--steps-ahead 0", "leave one of them out"]),
            (["--graphs", "on", "--strategy", "parameter_server"], 64, ["--graphs on", "leave it out"]),
            (["--gpu-exchange", "ipc", "--strategy", "parameter_server"], 64, ["--gpu-exchange", "leave it out"]),
            (["--dtype", "int32"], 64, ["int32", "float32, float64, bfloat16 or float16"]),
            (["--dtype", "float16"], 64, ["--dtype float16", "cpu:0 has no kernels", "give another --dtype"]),
            (["--algorithm", "x"], 64, ["x", "auto, direct, one_shot, ring", "leader_hierarchical"]),
            (["--algorithm"], 64, ["--algorithm: needs a value", "by size"]),
            (["--algorithm", "direct:..64k,rng:64k.."], 64, ["--algorithm", "'rng'", "auto, direct, one_shot, ring"]),
            (["--algorithm", "direct:64k"], 64, ["--algorithm", "'direct:64k' has no range", "direct:..64k"]),
            (["--algorithm", "direct:..x"], 64, ["--algorithm", "'x' is no size"]),
            (["--algorithm", "direct:9..9"], 64, ["--algorithm", "holds no size"]),
            (["--algorithm", "direct:..64k,ring:32k.."], 64, ["--algorithm", "direct and ring both want 32 KiB"]),
            (["--algorithm", "direct:..64k,"], 64, ["--algorithm", "names no algorithm"]),
            (["--update", "x"], 64, ["x", "auto, fused or separate"]),
            (["--update", "apart"], 64, ["apart", "auto, fused or separate"]),
            (["--update", "fused", "--algorithm", "halving_doubling"], 64, ["update fused", "halving_doubling", "--update separate"]),
            (["--update", "fused", "--algorithm", "ring", "--clip", "1"], 64, ["update fused", "norm", "use separate"]),
            (["--batch", "0"], 64, ["--batch", "'0'", "from 1 to"]),
            (["--batch", "-3"], 64, ["--batch", "'-3'", "from 1 to"]),
            (["--batch", "abc"], 64, ["--batch", "'abc'", "whole number"]),
            (["--batch", huge], 64, ["--batch", huge, "from 1 to"]),
            (["--batch", "1000000000", "--data", "random"], 64, ["--batch", "GiB"]),
            (["--batch", "301"], 64, ["--batch", "301", "300 examples"]),
            (["--replicas", "0"], 64, ["--replicas", "from 1 to"]),
            (["--replicas", "100000"], 64, ["--replicas", "from 1 to"]),
            (["--epochs", "-1"], 64, ["--epochs", "from 0 to"]),
            (["--steps", "-1"], 64, ["--steps", "from 0 to"]),
            (["--accumulate", "0"], 64, ["--accumulate", "from 1 to"]),
            (["--examples", "0"], 64, ["--examples", "from 1 to"]),
            (["--examples", "-1"], 64, ["--examples", "from 1 to"]),
            (["--seed", "-1"], 64, ["--seed", "from 0 to"]),
            (["--threads", "-1"], 64, ["--threads", "from 0 to"]),
            (["--rate", "-1"], 64, ["--rate", "'-1'", "above 0"]),
            (["--rate", "nan"], 64, ["--rate", "'nan'", "above 0"]),
            (["--rate", "inf"], 64, ["--rate", "'inf'", "above 0"]),
            (["--momentum", "1.5"], 64, ["momentum", "1.5", "below 1"]),
            (["--clip", "-1"], 64, ["--clip", "'-1'", "from 0"]),
            (["--weight-decay", "nan"], 64, ["--weight-decay", "'nan'", "from 0"]),
            (["--bucket", "-1"], 64, ["--bucket", "from 0", "MiB"]),
            (["--bucket", "64q"], 64, ["--bucket", "64k", "'64q'"]),
            (["--memory-limit", "much"], 64, ["--memory-limit", "64k", "bytes"]),
            (["--deadline", "0"], 64, ["--deadline", "above 0"]),
            (["--every", "-1"], 64, ["--every", "from 0", "10m"]),
            (["--keep", "0"], 64, ["--keep", "from 1"]),
            (["--eval", "-1"], 64, ["--eval", "from 0"]),
            (["--profile-steps", "0"], 64, ["--profile-steps", "from 1 to"]),
            (["--dtype", "float64"], 64, ["--dtype float64", "cpu:0 has no kernels", "--device reference"]),
        ])

    def test_commands(self):
        self.table([([], 64, ["no command", "train, predict, plan, bench, serve, render, doctor"]),
                    (["bogus"], 64, ["'bogus'", "train, predict, plan, bench, serve, render, doctor"]),
                    (["--bogus"], 64, ["'--bogus'", "train, predict, plan, bench, serve, render, doctor"]),
                    (["predict"], 64, ["--checkpoints", "required"]),
                    (["train", *SMALL, "--every", "5"], 64, ["--every 5", "--checkpoints"]),
                    (["doctor", "--bogus"], 64, ["--bogus", "lockstep doctor --help"])], command=())

    def test_files(self):
        (self.top / "empty").mkdir()
        (self.top / "file").write_text("text")
        idx_folder(self.top / "short", 28, missing=1)
        idx_folder(self.top / "small", 8)
        self.table([
            (["--data", self.top / "none"], 74, ["none", "does not exist"]),
            (["--data", self.top / "empty"], 74, ["train-images-idx3-ubyte", "missing"]),
            (["--data", self.top / "short"], 65, ["train-images-idx3-ubyte"]),
            (["--data", self.top / "small", "--threads", "1"], 64, ["28x28x1", "8x8x1"]),
        ], command=("train", *MLP, "--epochs", "1"))
        self.table([
            (["--checkpoints", self.top / "file"], 74, ["file", "is not a folder"]),
            (["--checkpoints", self.top / "file" / "below"], 74, ["below", "ot a "]),
            *((["--" + flag, ""], 64, ["--" + flag, "the name of a ", "''"])
              for flag in ("log", "summary", "profile", "checkpoints", "data")),
            (["--log", self.top / "file" / "below"], 74, ["below"]),
            (["--profile", self.top / "file" / "below"], 74, ["cannot write", "below"]),
            (["--profile", self.top], 74, ["cannot write", "it is not a file"]),
            (["--summary", self.top / "file"], 74, ["no summary", "file"]),
            (["--summary", "/proc/summary"], 74, ["no summary", "/proc/summary"]),
        ])
        self.assertEqual((self.top / "file").read_text(), "text")

    def test_colour_images(self):
        flags = ["--model", "resnet20", "--batch", "4", "--threads", "1", "--steps", "2"]
        for name in ("cifar", "short", "label"):
            folder = self.top / name / "cifar-10-batches-bin"
            folder.mkdir(parents=True)
            for number in range(1, 6):
                (folder / f"data_batch_{number}.bin").write_bytes(bytes([number]) + bytes(i % 251 for i in range(3072)))
            (folder / "test_batch.bin").write_bytes(bytes(3073))
        (self.top / "short/cifar-10-batches-bin/data_batch_5.bin").write_bytes(bytes(3072))
        (self.top / "label/cifar-10-batches-bin/test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
        (self.top / "empty").mkdir()
        some = ["--data", self.top / "cifar", "--checkpoints", self.top / "c"]
        said = self.good("train", *flags, *some).stderr
        self.assertIn("cifar10 cifar/train: 5 of 32x32x3", said)
        for said in (said, self.good("predict", *some).stderr):
            lines = [line for line in said.splitlines() if "warning" in line and "holds less than CIFAR-10" in line]
            self.assertEqual(len(lines), 1, said)
        self.table([
            (["--data", self.top / "empty"], 74, ["data_batch_1.bin is missing"]),
            (["--data", self.top / "short"], 65, ["data_batch_5.bin", "3072 bytes", "3073"]),
            (["--data", self.top / "label"], 65, ["test_batch.bin", "label 10"]),
            (["--augment", "rotate"], 64, ["--augment", "crop,flip"]),
            (["--model", "mlp", "--data", self.top / "cifar"], 64, ["28x28x1", "32x32x3"]),
            (["--model", "wide_deep", "--augment", "flip"], 64, ["only images"]),
        ], command=("train", *flags))

    def test_augmented_training_depends_on_no_number_of_replicas_and_goes_on_with_the_same_setting(self):
        flags = [*SMALL, "--augment", "crop,flip", "--eval", "0"]
        one, two = self.result(*flags), self.result(*flags, "--replicas", "2")
        self.assertAlmostEqual(one["loss"], two["loss"], places=4)
        self.assertNotAlmostEqual(one["loss"], self.result(*SMALL)["loss"], places=4)
        served = self.result(*flags, "--strategy", "parameter_server")
        self.assertEqual(served["loss"], one["loss"])
        runs = ["--checkpoints", self.top / "runs"]
        self.good("train", *flags, *runs)
        refused(self, ["train", *SMALL, *runs, "--augment", "flip"], 64, ["cropped with 4 pixels of -1 around, flipped by seed 1", "the same data"])
        self.good("train", *flags, *runs, "--epochs", "2")

    def test_predict(self):
        (self.top / "empty").mkdir()
        idx_folder(self.top / "small", 8)
        self.good("train", *SMALL, "--checkpoints", self.top / "damaged")
        shutil.copytree(self.top / "damaged", self.top / "whole")
        shard = next((self.top / "damaged").glob("step-*/*.safetensors"))
        bits = bytearray(shard.read_bytes())
        bits[-1] ^= 1
        shard.write_bytes(bits)
        again = run("train", *SMALL, "--checkpoints", self.top / "damaged")   # no fresh start over it
        self.assertEqual((again.returncode, again.stdout), (65, ""), again.stderr)
        self.assertEqual(again.stderr.count("lockstep: "), 1, again.stderr)
        self.assertIn(shard.name, again.stderr)
        self.table([
            (["--checkpoints", self.top / "empty"], 74, ["empty", "no checkpoint"]),
            (["--checkpoints", self.top / "none"], 74, ["none", "no checkpoint"]),
            (["--checkpoints", self.top / "damaged"], 65, [shard.name, "no whole checkpoint is there", "remove the folder"]),
            (["--checkpoints", self.top / "whole", "--data", self.top / "small", "--threads", "1"], 64, ["28x28x1", "8x8x1"]),
            (["--checkpoints", self.top / "damaged", "--split", "x"], 64, ["--split", "test or train"]),
            (["--checkpoints", self.top / "damaged", "--batch", "0"], 64, ["--batch", "from 1 to"]),
        ], command=("predict",))

    def test_by_size_an_update_is_fused_where_all_buckets_have_a_place_for_it(self):
        flags = ["train", *SMALL, "--replicas", "2", "--update", "fused", "--algorithm"]
        refused(self, [*flags, "direct:..4k,one_shot:4k.."], 64, ["update fused", "one_shot has none", "use separate"])
        refused(self, [*flags, "direct:..4k,ring:4k..", "--clip", "1"], 64, ["norm", "ring was chosen", "use separate"])
        self.assertIn(", update fused ", self.good(*flags, "one_shot:..4k,direct:4k..").stderr)

    def test_algorithms_by_size(self):
        """Buckets take what is asked for their bytes, and the choice is said; again from a checkpoint, whatever of it is asked for again."""
        asked = "direct:..64k,ring:64k.."
        flags = [*ENDLESS, "--replicas", "2", "--bucket", "0.1", "--checkpoints", self.top / "c", "--every", "3", "--json"]
        done = self.good("train", *flags, "--algorithm", asked, "--steps", "3", "-v")
        self.assertRegex(done.stderr, r"\nbuckets: \d+ of up to 102 KiB\n")
        rules = json.loads(done.stdout)["algorithm"]
        self.assertRegex(rules, r"^direct:\.\.\d+,ring:\d+\.\.$")
        line = next(line for line in done.stderr.splitlines() if line.startswith("all-reduce: "))
        self.assertRegex(line, r"^all-reduce: ring for \d+ buckets and direct for 1, update fused")
        for again in ([], ["--algorithm", "ring:65536..,direct:..64KiB"], ["--algorithm", rules]):
            done = self.good("train", *flags, *again, "--steps", "6", "--verbose")
            self.assertIn("the plan is the checkpoint's, so that the bits are the same", done.stderr)
            self.assertRegex(done.stderr, r"\nall-reduce: .*; as in the checkpoint\n")
            self.assertNotIn("bits may differ", done.stderr)
            self.assertEqual(json.loads(done.stdout)["algorithm"], rules)
            shutil.rmtree(self.top / "c" / "step-000000000006", ignore_errors=True)
        self.assertIn("bits may differ", self.good("train", *flags, "--algorithm", "direct").stderr)

    def test_a_bucket_is_in_mib_or_in_its_unit(self):
        said = {size: [line for line in self.good("train", *ENDLESS, "--replicas", "2", "--assumed", "--steps", "1", "-v", "--bucket", size).stderr.splitlines()
                       if line.startswith("buckets: ")] for size in ("0.125", "128k", "128KiB", "131072b", "1")}
        self.assertEqual(len({tuple(lines) for size, lines in said.items() if size != "1"}), 1, said)
        self.assertNotEqual(said["1"], said["128k"])

    def test_direct_is_fine_on_one_host(self):
        self.assertEqual(self.result(*SMALL, "--algorithm", "direct", "--replicas", "2")["algorithm"], "direct")

    def test_under_mpirun_one_process_says_it(self):
        for arguments, word in [(["--rate", "-1"], "--rate"), (["--bogus"], "--bogus"), (["--model", "x"], "'x'"),
                                (["--data", self.top / "none"], "none")]:
            with self.subTest(arguments):
                refused(self, ["train", *(MLP if "--data" in arguments else SMALL), *COLLECTIVE, *arguments],
                        74 if "--data" in arguments else 64, [word], prefix=mpirun())
        for flag in ("--profile", "--summary", "--log"):   # files of the chief's host alone
            refused(self, ["train", *SMALL, *COLLECTIVE, flag, "/proc/none/file"], 74, ["/proc/none"], prefix=mpirun())
        refused(self, ["train", *SMALL, "--strategy", "mirrored"], 64,
                ["one process", "collective_all_reduce"], prefix=mpirun())
        # Also where that process comes last: the others, which say nothing, must not end the job before.
        late = ["sh", "-c", 'test "$OMPI_COMM_WORLD_RANK" != 0 || sleep 2.5; exec "$0" "$@"']
        refused(self, ["train", "--rate", "-1"], 64, ["--rate"], prefix=mpirun() + late)
        begin = time.monotonic()
        refused(self, ["predict", "--checkpoints", self.top], 64, ["one process"], prefix=mpirun())
        self.assertLess(time.monotonic() - begin, 30)

    def test_a_loss_that_is_not_finite_is_named(self):
        folder = self.top / "c"
        done = run("train", *SMALL, "--rate", "1e30", "--every", "1", "--checkpoints", folder)
        lines = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertRegex(lines[0], r"not finite at step (\d+)")
        self.assertIn("dense", lines[0])
        step = int(lines[0].split("at step ")[1].split(",")[0])
        self.assertLessEqual(max(whole(folder), default=0), step)
        self.assertEqual(done.stdout, "")


class Predict(Case):
    def rows(self, folder, *flags):
        done = self.good("predict", "--checkpoints", folder, *flags)
        return list(csv.reader(io.StringIO(done.stdout))), done.stderr

    def check(self, folder):
        (header, *rows), errors = self.rows(folder)
        self.assertEqual(header, ["index", "predicted"] + [f"p{i}" for i in range(10)])
        self.assertEqual(sorted(int(row[0]) for row in rows), list(range(len(rows))))
        for row in rows:
            values = [float(value) for value in row[2:]]
            self.assertAlmostEqual(sum(values), 1, delta=1e-4)
            self.assertAlmostEqual(values[int(row[1])], max(values), delta=1e-5)
        (header, *logits), _ = self.rows(folder, "--logits")
        self.assertEqual(header, ["index", "predicted"] + [f"l{i}" for i in range(10)])
        labels = {row[0]: row[1] for row in rows}
        self.assertEqual({row[0]: row[1] for row in logits}, labels)
        self.assertTrue(any(float(value) < 0 for value in logits[0][2:]))
        return float(errors.split("accuracy ")[1].split()[0])

    def test_probabilities_logits_and_accuracy(self):
        trained = self.result(*SMALL, "--checkpoints", self.top / "c")
        self.assertAlmostEqual(self.check(self.top / "c"), trained["test_accuracy"], delta=1e-3)

    def test_of_weights_that_smoothed_labels_and_lars_have_made(self):
        lars = ["--optimizer", "lars", "--weight-decay", "0.001", "--label-smoothing", "0.1"]
        trained = self.result(*SMALL, *lars, "--checkpoints", self.top / "c")
        self.assertAlmostEqual(self.check(self.top / "c"), trained["test_accuracy"], delta=1e-3)
        refused(self, ["train", *SMALL, "--checkpoints", self.top / "c"], 64, ["smoothing 0.1", "another model"])

    def test_of_a_checkpoint_of_two_processes(self):
        trained = self.result(*SMALL, *COLLECTIVE, "--checkpoints", self.top / "c", prefix=mpirun())
        self.assertAlmostEqual(self.check(self.top / "c"), trained["test_accuracy"], delta=1e-3)


class Doctor(Case):
    def test_says_what_there_is(self):
        found = json.loads(self.good("doctor", "--json").stdout)
        text = self.good("doctor").stdout
        for part in ("lockstep", "host", "processor", "memory", "NUMA nodes", "hwloc", "device cpu:0", "CUDA", "MPI", "MPI and GPUs", "mpirun", "network",
                     "job", "shared memory", "process watch"):
            self.assertIn(part, text)
            self.assertIsInstance(found[part]["found"], bool, part)
            self.assertTrue(found[part]["text"], part)
        self.assertRegex(found["device cpu:0"]["text"], r"oneDNN \d+\.\d+")
        self.assertRegex(found["MPI"]["text"], r"Open MPI \d|install")
        self.assertRegex(found["MPI and GPUs"]["text"], r"CUDA-aware|takes memory of GPUs|no MPI here says")
        self.assertRegex(found["network"]["text"], r"^\S+: (up|down)|no interface but loopback")
        self.assertRegex(found["hwloc"]["text"], r"^\d+\.\d+.*hyperthreads|hyperthreads.*install libhwloc-dev")
        self.assertRegex(found["NUMA nodes"]["text"], r"^[1-9]\d* \(node \d+: [1-9]\d* processors? on [1-9]\d* cores?")


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
