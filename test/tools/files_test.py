#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Files that others made: whatever a name leads to, reading it ends at once, and the error is one line that quotes
little of what stands there.

usage: files_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import socket
import sys

import program
from program import refused

TRAIN = ["train", *program.MLP, "--epochs", "1"]
MOST_QUOTED = 200


class NoFiles(program.Case):
    """A pipe that nobody writes to, a socket, a device without end, a folder, and a file of /proc that waits."""

    def setUp(self):
        super().setUp()
        os.mkfifo(self.top / "pipe")
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(str(self.top / "socket"))
        self.text = self.top / "text"
        self.text.write_text("text")
        self.kinds = [(self.top / "pipe", "is not a file, but a pipe"), (self.top / "socket", "is not a file, but a socket"),
                      ("/dev/zero", "is not a file, but a device"), (self.top, "a folder"),
                      ("/proc/kmsg", "cannot be"), ("/proc/self/mem", "cannot be read")]

    def folder_of(self, name, target):
        folder = self.top / f"data-{name}"
        if not folder.exists():
            program.idx_folder(folder, 28)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
        return folder

    def check(self, path, words, *arguments):
        with self.subTest(path=str(path), arguments=arguments):
            refused(self, arguments, 74, [str(path), words])

    def test_flags_and_topologies(self):
        for path, words in self.kinds:
            self.check(path, words, "train", "--config", path)
            self.check(path, words, "plan", "--topology", path)

    def test_files_of_tls(self):
        flags = ["--tls-authority", "--tls-certificate", "--tls-key"]
        for path, words in self.kinds[:3] + self.kinds[4:]:
            for bad in flags:
                files = [word for flag in flags for word in (flag, path if flag == bad else self.text)]
                self.check(path, words, "serve", "--address", "127.0.0.1:0", *files)

    def test_data(self):
        clicks = ["train", "--model", "wide_deep", "--batch", "5", "--epochs", "1"]
        for path, words in self.kinds[:3]:
            self.check(path, words, *clicks, "--data", path)
            for name, flags in (("train-images-idx3-ubyte", TRAIN), ("train-labels-idx1-ubyte", TRAIN),
                                ("data_batch_1.bin", ["train", "--model", "resnet20", "--batch", "5", "--epochs", "1"])):
                self.check(name, words, *flags, "--data", self.folder_of(name, path))

    def test_files_of_a_checkpoint(self):
        runs = self.top / "runs"
        self.good(*TRAIN, "--examples", "50", "--eval", "0", "--checkpoints", runs)
        step = next(runs.glob("step-*"))
        for victim in (step / "manifest.json", next(step.glob("*.safetensors"))):
            whole = victim.read_bytes()
            victim.unlink()
            os.mkfifo(victim)
            refused(self, ["predict", "--checkpoints", runs], 65, [victim.name, "is not a file, but a pipe"])
            victim.unlink()
            victim.write_bytes(whole)

    def test_results_are_written_to_files_alone(self):
        for path, kind in self.kinds[:3]:
            for flag in ("--svg", "--topology-out"):
                with self.subTest(path=str(path), flag=flag):
                    refused(self, ["plan", "--topology", "3x1", flag, path], 74, [str(path), "is not a file"])


class Json(program.Case):
    """What is no JSON, or too large in it, is the user's error: 64, at most 200 bytes of it in one line."""

    def quotes_little(self, text, *arguments, words=()):
        path = self.top / "file.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        with self.subTest(text=path.read_text()[:80], arguments=arguments):
            done = program.run(*arguments, path)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (64, "", 1), done.stderr[:2000])
            for word in ("file.json", *words):
                self.assertIn(word, done.stderr)
            self.assertNotIn("json.exception", done.stderr)
            self.assertLess(max(map(done.stderr.count, "xy9[")), MOST_QUOTED + 10, done.stderr[:2000])

    def test_numbers_beyond_a_double(self):
        for number in ("1e400", "-1e400", "9" * 5000, "[" + "1e400" + "]"):
            self.quotes_little('{"rate": %s}' % number, "train", "--config")
            for place in ('{"wire": {"bytes_per_second": %s}, "hosts": [{"name": "h"}]}',
                          '{"hosts": [{"name": "h", "ranks": %s}]}', '{"hosts": [{"name": "h", "memory": %s}]}',
                          '{"hosts": [{"name": "h", "costs": {"signal_seconds": %s}}]}'):
                self.quotes_little(place % number, "plan", "--topology")
        self.quotes_little('{"rate": 1e400}', "train", "--config", words=['a number of "rate"', "1.8e308"])

    def test_long_values(self):
        for long in ("x" * 5000, "x y " * 1200, ["x" * 5000], {"x" * 5000: 1}, "\u00e9" * 2000 + "x" * 3000):
            for name in ("rate", "model", "json", "algorithm", "bucket", "loss-scale", "interface", "optimizer"):
                self.quotes_little({"examples": 60, name: long}, "train", "--config")
            for cluster in ({"hosts": long}, {"hosts": [{"name": long, "rank": 1}]}, {"hosts": [{"name": long}] * 2},
                            {"hosts": [{"name": "h", "machine": long}]}, {"hosts": [{"name": "h", "ranks": long}]},
                            {"hosts": [{"name": "h", "costs": {"link": long}}]}, {"hosts": [{"name": "h"}], "wire": long},
                            {"hosts": [{"name": "h", "device": long}]}, {"hosts": [{"name": "h", "memory": long}]}):
                self.quotes_little(cluster, "plan", "--topology")
        key = "x y" * 2000
        self.quotes_little({key: 1}, "train", "--config")
        self.quotes_little('{"%s": 1, "%s": 2}' % (key, key), "train", "--config", words=["stands twice"])
        self.quotes_little({key: 1}, "plan", "--topology")

    def test_deep_values(self):
        for depth in (40, 30000):
            deep = "[" * depth + "]" * depth
            self.quotes_little('{"rate": %s}' % deep, "train", "--config", words=["nested deeper"])
            self.quotes_little('{"hosts": [{"ranks": %s}]}' % deep, "plan", "--topology", words=["nested deeper"])

    def test_long_files(self):
        for bytes_, arguments in ((1 << 17, ["train", "--config"]), (17 << 20, ["plan", "--topology"])):
            self.quotes_little("x" * bytes_, *arguments, words=["longer than"])

    def test_flags_quote_little_too(self):
        for flag in ("--rate", "--model", "--bucket", "--devices", "--interface", "--algorithm", "--" + "x" * 5000):
            for value in ("x" * 5000, "x y" * 1600):
                done = program.run(*TRAIN, "--examples", "60", flag, value)
                with self.subTest(flag=flag[:20], value=value[:5]):
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (64, 1), done.stderr[:2000])
                    self.assertLess(done.stderr.count("x"), MOST_QUOTED + 10)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
