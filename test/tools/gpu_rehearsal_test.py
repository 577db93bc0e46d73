#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`lockstep bench --device` and `train` on fake GPUs, and a rehearsal of tools/gpu_check.sh on one: the programs that it
runs are the real ones, but for what finds GPUs, and do what they are told in small. It ends with the tables that it ends
with on a GPU.

usage: gpu_rehearsal_test.py LOCKSTEP BENCH_DEVICE BENCH_STEP TEST_CUDA_OPS [NAMES OF TESTS]

The first three are linked with test/engine/cuda/fake_cuda_device.cpp. The emulator is slow, so launchers in the form of
a bundle add flags that make everything small; of a flag that is given twice the last one counts. Tests of whole training
runs, of cuDNN, compute-sanitizer and PyTorch are scripts that say that they passed, or are not there.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import program as program_test

PROGRAMS = [str(pathlib.Path(path).resolve()) for path in sys.argv[1:5]]
SOURCE = pathlib.Path(__file__).resolve().parents[2]
UNKNOWN = {"resnet50_256_over_pytorch", "resnet50_32_over_pytorch", "mnist_cnn_128_over_pytorch"}

LOCKSTEP = """#!/bin/sh
case "$*" in
bench*) set -- "$@" --min 4k --max 4k --iterations 1 --copy 1MiB ;;
*'--data random'*) set -- "$@" --model mlp --batch 4 --steps 4 ;;
train*) set -- "$@" --model mlp --data '{digits}' --batch 20 --threads 1 ;;
esac
# A fake GPU is one process's own.
case "$*" in *'--gpu-exchange ipc'*) set -- "$@" --gpu-exchange host ;; esac
exec '{program}' "$@"
"""
BENCH_DEVICE = "#!/bin/sh\nexec '{program}' \"$@\" --parameters 5000 --copy-mib 1 --turns 1 --batch-ms 0.1\n"
BENCH_STEP = ("#!/bin/sh\nexec '{program}' \"$@\" --model mlp --batch 4 --warm-up 4 --steps 8 --group 4 --layer-steps 0 "
              "--product 64 --copy-mib 1\n")
OPS = "#!/bin/sh\nexec '{program}' '--gtest_filter=Conformance.ElementWiseKernels:Conformance.DropoutKeepsTheSameUnits'\n"
PASSED = "#!/bin/sh\necho '[ RUN      ] {0}'\necho '[       OK ] {0} (1 ms)'\n"


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


class Rehearsal(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = pathlib.Path(folder.name).resolve()
        put(self.top / "glibc_needed", "2.17\n")
        put(self.top / "version", "lockstep 1\n")
        for script in ("gpu_check.sh", "gpu_report.py"):
            put(self.top / "tools" / script, (SOURCE / "tools" / script).read_text(encoding="utf-8"))
        put(self.top / "bench/peers/torch_resnet50.py", "print('skipped: no PyTorch')\nraise SystemExit(77)\n")
        digits = program_test.idx_folder(self.top / "digits", 28)  # 60 to train on, 60 to test with
        for name, text, program in zip(("lockstep", "bench_device", "bench_step", "test_ops"),
                                       (LOCKSTEP, BENCH_DEVICE, BENCH_STEP, OPS), PROGRAMS):
            put(self.top / "bin" / name, text.format(program=program, digits=digits))
        put(self.top / "bin/test_gpu_train", PASSED.format("GpuTrain.DigitsAreLearntAsWellAsOnTheProcessor"))
        put(self.top / "bin/test_cuda_graphs", PASSED.format("Graphs.All"))
        put(self.top / "path/compute-sanitizer", PASSED.format("Conformance.Relu"))

    def check(self, part):
        """What the table says of each demand of the part."""
        done = subprocess.run(
            [self.top / "tools/gpu_check.sh", "--only", part, "--output", self.top / "out.json", "--cache", self.top / "cache"],
            capture_output=True, text=True, timeout=250, env={**os.environ, "PATH": f"{self.top}/path:{os.environ['PATH']}"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        found = json.loads((self.top / "out.json").read_text(encoding="utf-8"))
        self.assertIn("Fake GPU", found["devices"]["cuda:0"])
        for row in found["demands"].values():
            self.assertEqual(len([line for line in done.stdout.splitlines() if line.strip().startswith(row["demand"])]), 1, done.stdout)
        return found

    def test_speed_ends_with_its_table(self):
        found = self.check("speed")
        self.assertEqual({name for name, row in found["demands"].items() if row["measured"] is None}, UNKNOWN)
        for name, bench in found["benches"].items():
            if name.startswith("all_reduce_"):
                self.assertEqual([(row["wrong"], row["algorithm"]) for row in bench["figures"]], [(0, "direct")], name)
        self.assertEqual(found["benches"]["step_resnet50_128_twice"]["figures"][0]["replicas"], 2)

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is missing")
    def test_correctness_ends_with_its_table(self):
        found = self.check("correctness")
        self.assertEqual({name for name, row in found["demands"].items() if row["measured"] is None}, set())
        for name in ("digits_runs_equal", "digits_resumed_equal", "tests"):
            self.assertIs(found["demands"][name]["met"], True, name)


class BenchOnGpus(unittest.TestCase):
    def bench(self, *flags):
        done = subprocess.run([PROGRAMS[0], "bench", *flags, "--min", "4k", "--max", "16k", "--factor", "4", "--copy", "1MiB",
                               "--iterations", "2"],
                              capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LOCKSTEP_FAKE_GPUS": "2", "XDG_CACHE_HOME": ""})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("lockstep: NCCL is not timed: ", done.stderr)
        return done

    def test_ranks_are_where_they_are_asked_for(self):
        for flags, devices in ((["--device", "cuda"], "cuda:0,cuda:1"),
                               (["--device", "cuda", "--ranks", "3"], "cuda:0,cuda:1,cuda:0"),
                               (["--device", "cuda:1"], "cuda:1,cuda:1"),
                               (["--devices", "cuda:1,cuda:0", "--dtype", "bfloat16"], "cuda:1,cuda:0")):
            rows = [json.loads(line) for line in self.bench(*flags, "--json").stdout.splitlines()]
            self.assertEqual([row["bytes"] for row in rows], [4096, 16384])
            for row in rows:
                self.assertEqual((row["devices"], row["wrong"], row["chosen"]), (devices, 0, True))
                self.assertGreater(min(row["roofline_percent"], row["predicted_us"], row["in_place_us"]), 0)

    def test_each_algorithm_has_a_line(self):
        done = self.bench("--devices", "cuda:0,cuda:0", "--algorithm", "direct,ring,auto", "--assumed")
        self.assertIn("ranks 0 and 1 are both on cuda:0", done.stderr)
        self.assertIn("# 2 ranks on cuda:0,cuda:0: Fake GPU", done.stdout)
        self.assertRegex(done.stdout, r"\n +4096 +1024 direct .*\n +4096 +1024 ring ")


class TrainOnGpus(unittest.TestCase):
    def first_lines(self, gpus, prefix=()):
        done = subprocess.run([*prefix, PROGRAMS[0], "train", *program_test.ENDLESS, "--steps", "1", "--eval", "0"],
                              capture_output=True, text=True, timeout=120,
                              env={**os.environ, "LOCKSTEP_FAKE_GPUS": gpus, "XDG_CACHE_HOME": ""})
        self.assertEqual(done.returncode, 0, done.stderr)
        return "\n".join(done.stderr.splitlines()[:3])

    def test_gpus_are_used_where_every_process_can_have_one(self):
        self.assertIn("replicas on cuda:0 (Fake GPU", self.first_lines("1"))
        if shutil.which("mpirun"):
            self.assertIn("device: cpu, because 2 processes of this host cannot have a GPU each: it has 1",
                          self.first_lines("1", program_test.mpirun()))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
