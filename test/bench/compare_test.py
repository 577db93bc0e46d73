#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/peers/compare.sh with programs that play lockstep and the peers: ratios, files, picture, bad options.

usage: compare_test.py COMPARE_SH [UNITTEST_ARGUMENT...]
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

COMPARE = sys.argv[1]
# Images a second, of one core or replica: ours 300; one of theirs 100, the other 150, two processes less. With
# bfloat16 ours 900 on one core, where it is asked for. MiB: ours 10, or 4; one of theirs 20, the other 30.
STEP = """#!/bin/sh
case "$*" in *"--replicas 2"*) r=540 ;; *collective*) r=570 ;; *"--dtype bfloat16"*) r=900 ;; *) r=300 ;; esac
case "$*" in *"--recompute"*) m=4 ;; *) m=10 ;; esac
echo "$*" >>"$(dirname "$0")/asked"
echo "a line for people" >&2
echo "{\\"examples_per_second\\": $r, \\"peak_mib\\": $m}"
"""
PYTHON = """#!/bin/sh
case "$1" in -c) exit 0 ;; *torch*) r=100 m=20 ;; *) r=150 m=30 ;; esac
[ "${WORLD_SIZE:-1}" = 1 ] || r=120
[ "${RANK:-0}" = 0 ] || exit ${OTHER_RANKS_EXIT:-0}
echo "$*" >>"$(dirname "$0")/asked"
echo "{\\"examples_per_second\\": $r, \\"peak_mib\\": $m, \\"peer\\": \\"a peer\\", \\"setting\\": \\"<a & setting>\\"}"
"""
MPIRUN = """#!/bin/sh
while :; do case "$1" in sh | */bench_step) break ;; *) shift ;; esac; done
OMPI_COMM_WORLD_LOCAL_RANK=0 exec "$@"
"""


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for path, text in (("build/bench/bench_step", STEP), ("venv/bin/python", PYTHON), ("bin/mpirun", MPIRUN)):
            file = self.folder / path
            file.parent.mkdir(parents=True)
            file.write_text(text)
            file.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}

    def compare(self, *arguments, **environment):
        return subprocess.run([COMPARE, "--venv", f"{self.folder}/venv", "--build", f"{self.folder}/build",
                               "--out", f"{self.folder}/out", *arguments], capture_output=True, text=True, timeout=120,
                              env={**self.environment, **environment})

    def result(self):
        return json.loads((self.folder / "out/compare.json").read_text())

    def test_ratios_are_those_against_the_faster_peer(self):
        done = self.compare("--quick", "--models", "mlp")
        self.assertEqual(done.returncode, 0, done.stderr)
        ratios = {case["name"]: case["result"]["ratio"] for case in self.result()["cases"]}
        self.assertEqual(ratios["mlp, one core"], 2.0)
        self.assertIn("lockstep is 2.00 times the faster, TensorFlow", done.stdout)
        self.assertIn("<a & setting>", done.stdout)
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core: two processes are not compared")
        self.assertEqual(ratios["mlp, two processes of one core each"], 570 / 120)
        shares = {share["name"]: share["result"]["ratio"] for share in self.result()["shares"]}
        self.assertEqual(shares, {"mlp, two processes": 0.95, "mlp, two Mirrored replicas": 0.9})

    def asked(self, program):
        return (self.folder / program).read_text().splitlines()

    def test_bfloat16_is_asked_of_all_and_is_a_case_of_its_own(self):
        done = self.compare("--quick", "--models", "mnist_cnn,mlp")
        self.assertEqual(done.returncode, 0, done.stderr)
        ratios = {case["name"]: case["result"]["ratio"] for case in self.result()["cases"] if case["processes"] == 1}
        self.assertEqual(ratios, {"mnist_cnn, one core": 2.0, "mlp, one core": 2.0, "mnist_cnn bfloat16, one core": 6.0})
        for asked in (self.asked("build/bench/asked"), self.asked("venv/bin/asked")):
            low = [line for line in asked if "--dtype bfloat16" in line]
            self.assertTrue(low and all("mnist_cnn" in line for line in low), asked)
            self.assertLess(len(low), len(asked))
        self.assertTrue(any("torch" in line for line in self.asked("venv/bin/asked") if "bfloat16" in line))

    def test_a_batch_is_as_large_as_the_peers_is_and_memory_is_told(self):
        done = self.compare("--quick", "--models", "resnet50", "--dtypes", "float32")
        self.assertEqual(done.returncode, 0, done.stderr)
        case = next(case for case in self.result()["cases"] if case["processes"] == 1)
        memory = {name: one["peak_mib"] for name, one in case["contestants"].items()}
        self.assertEqual(memory, {"lockstep": 10, "lockstep, recompute": 4, "PyTorch": 20, "TensorFlow": 30})
        self.assertEqual(case["batch"], 16)
        self.assertEqual((case["memory"], case["recompute"]["memory"], case["recompute"]["ratio"]), (0.5, 0.4, 1.0))
        self.assertRegex(done.stdout, r"PyTorch .* 20 MiB")
        for line in self.asked("build/bench/asked"):
            replicas = 2 if "--replicas 2" in line or "collective" in line else 1
            self.assertIn(f"--batch {16 * replicas}", line)

    def test_two_hosts_are_compared_or_it_is_said_why_not(self):
        done = self.compare("--quick", "--ours", "--models", "resnet50")
        self.assertEqual(done.returncode, 0, done.stderr)
        shares = {share["name"]: share["result"]["ratio"] for share in self.result()["shares"]}
        if len(os.sched_getaffinity(0)) < 2:
            self.assertEqual(shares, {})
        elif "resnet50, two hosts" in shares:
            self.assertEqual(shares["resnet50, two hosts"], 0.95)
            self.assertIn("links of 1 Gbit/s: 0.950 of uncoupled", done.stdout)
        else:
            self.assertRegex(done.stdout, "two virtual hosts: skipped, .*virtual_cluster: ")

    def test_without_root_two_hosts_are_skipped_and_the_rest_is_measured(self):
        program = self.folder / "bin/id"
        program.write_text("#!/bin/sh\necho 1000\n")
        program.chmod(0o755)
        done = self.compare("--quick", "--ours", "--models", "resnet50")
        self.assertEqual(done.returncode, 0, done.stderr)
        shares = [share["name"] for share in self.result()["shares"]]
        if len(os.sched_getaffinity(0)) >= 2:
            self.assertEqual(shares, ["resnet50, two processes", "resnet50, two Mirrored replicas"])
            self.assertRegex(done.stdout, "two virtual hosts: skipped, .*needs root")

    def test_the_picture_is_svg_with_a_bar_for_each_contestant(self):
        self.assertEqual(self.compare("--quick", "--models", "mlp,mnist_cnn,resnet50").returncode, 0)
        root = xml.etree.ElementTree.parse(self.folder / "out/compare.svg").getroot()
        bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("rx")]
        result = self.result()
        contestants = sum(len(case["contestants"]) for case in result["cases"])
        self.assertEqual(len(bars), contestants + len(result["shares"]))
        self.assertTrue(all(0 < float(bar.get("x")) + float(bar.get("width")) < 920 for bar in bars))

    def test_without_peers_only_the_shares(self):
        done = self.compare("--quick", "--ours", "--models", "mlp")
        self.assertEqual((done.returncode, self.result()["cases"]), (0, []), done.stderr)

    def test_a_rank_that_fails_fails_the_comparison_and_nothing_is_written(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core: two processes are not compared")
        done = self.compare("--quick", "--models", "mlp", OTHER_RANKS_EXIT="3")
        self.assertEqual(done.returncode, 1)
        self.assertIn("PyTorch: exit code 3", done.stderr)
        self.assertFalse((self.folder / "out").exists())

    def test_bad_options_say_what_is_wrong(self):
        for arguments, word in ((["--fast"], "--fast"), (["--models", "vgg"], "vgg"),
                                (["--dtypes", "float8"], "float8"), (["--rounds"], "--rounds")):
            done = self.compare(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
