#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The data that the program reads: which a checkpoint records, how files may be named and written, what is said
about them.

usage: data_test.py LOCKSTEP [NAMES OF TESTS]
"""
import csv
import io
import json
import shutil
import sys
import zlib

import program
from program import Case, MLP, SMALL, idx, idx_folder, refused, run


class PredictedData(Case):
    """lockstep predict takes the data that the run was trained on, or others that are named."""

    def trained(self, *flags):
        self.good("train", *flags, "--checkpoints", self.top / "c")
        return self.top / "c"

    def rows(self, *flags):
        done = self.good("predict", "--checkpoints", self.top / "c", "--threads", "1", *flags)
        return len(list(csv.reader(io.StringIO(done.stdout)))) - 1, done.stderr

    def folder(self):
        folder = idx_folder(self.top / "ours", 28)
        idx(folder / "t10k-images-idx3-ubyte", 41, 28, 28)
        idx(folder / "t10k-labels-idx1-ubyte", 41)
        return folder

    def without_notes(self):
        """As checkpoints were that recorded no data."""
        path = next((self.top / "c").glob("step-*/manifest.json"))
        manifest = json.loads(path.read_text())
        manifest["state"]["notes"] = {}
        del manifest["crc32"]
        body = json.dumps(manifest)[1:]
        path.write_text(f'{{"crc32": "{zlib.crc32(body.encode()):08x}",\n{body}')

    def test_of_files_are_found_again_from_another_folder(self):
        self.folder()
        done = run("train", *MLP, "--epochs", "1", "--batch", "20", "--data", "ours", "--checkpoints", "c",
                   where=self.top)
        self.assertEqual(done.returncode, 0, done.stderr)
        count, said = self.rows()
        self.assertEqual(count, 41)
        self.assertIn(" on idx ours/test: 41 of 28x28x1", said)
        self.assertEqual(self.rows("--split", "train")[0], 60)

    def test_that_are_gone_or_changed_are_refused_and_both_are_named(self):
        folder = self.folder()
        predict = ["predict", "--checkpoints", self.trained(*MLP, "--epochs", "1", "--batch", "20", "--data", folder)]
        idx(folder / "train-images-idx3-ubyte", 61, 28, 28)
        idx(folder / "train-labels-idx1-ubyte", 61)
        refused(self, predict, 64,
                ["trained on idx ours/train: 60 of", str(folder), "is idx ours/train: 61 of", "--data"])
        folder.rename(self.top / "moved")
        refused(self, predict, 74, ["does not exist", "trained on idx ours/train: 60 of", "--data"])
        count, said = self.rows("--data", self.top / "moved")
        self.assertEqual(count, 41)
        self.assertIn("on idx moved/test: 41 of 28x28x1, 10 classes (trained on idx ours/train: 60 of", said)

    def test_of_a_checkpoint_that_records_none_are_compared(self):
        folder = self.folder()
        predict = ["predict", "--checkpoints", self.trained(*MLP, "--epochs", "1", "--batch", "20", "--data", folder)]
        self.without_notes()
        refused(self, predict, 64, ["trained on idx ours/train: 60 of", "generated digits", "--data"])
        count, said = self.rows("--data", folder)
        self.assertEqual(count, 41)
        self.assertNotIn("trained on", said)

    def test_that_the_program_draws_are_as_many_as_were_asked_for(self):
        self.trained(*SMALL, "--augment", "crop,flip", "--seed", "3")
        count, said = self.rows("--split", "train")
        self.assertEqual(count, 300)
        self.assertNotIn("trained on", said)
        self.assertIn("(trained on generated digits", self.rows("--examples", "200")[1])
        shutil.rmtree(self.top / "c")
        self.trained(*MLP, "--data", "random", "--steps", "2")
        self.assertEqual(self.rows("--split", "train")[0], 50)
        refused(self, ["predict", "--checkpoints", self.top / "c", "--examples", "9"], 64,
                ["--examples 9", "--data random"])


class MnistNames(Case):
    """Names under which the files of MNIST are found in the wild."""
    FLAGS = ["train", *MLP, "--batch", "20", "--steps", "2", "--data"]

    def test_dots_and_folders_are_read_and_what_is_missing_is_named(self):
        folder = idx_folder(self.top / "data", 28)
        expected = json.loads(self.good(*self.FLAGS, folder, "--json").stdout)["test_loss"]
        for file in list(folder.iterdir()):
            if "t10k" in file.name:
                file.rename(folder / file.name.replace("-idx", ".idx"))
            else:
                content = file.read_bytes()
                file.unlink()
                file.mkdir()
                (file / file.name).write_bytes(content)
        self.assertEqual(json.loads(self.good(*self.FLAGS, folder, "--json").stdout)["test_loss"], expected)
        refused(self, [*self.FLAGS, self.top], 74,
                ["train-images-idx3-ubyte is missing", f"{folder} has it: name that folder"])

    def test_a_page_that_was_saved_as_a_file_is_named(self):
        folder = idx_folder(self.top / "data", 28)
        (folder / "train-images-idx3-ubyte").unlink()
        (folder / "train-images-idx3-ubyte.gz").write_bytes(b"<!DOCTYPE html><html>404 Not Found</html>")
        refused(self, [*self.FLAGS, folder], 65,
                ["train-images-idx3-ubyte.gz", "a web page", "download the file again"])


class Clicks(Case):
    """wide_deep with files in Criteo's format."""
    FLAGS = ["train", "--model", "wide_deep", "--batch", "20", "--threads", "1", "--epochs", "2"]

    def file(self, name, lines):
        rows = (["01"[i % 3 == 0], *(str(i * (c + 1) % 50) for c in range(13)),
                 *(f"{i * (c + 3) % 9:08x}" for c in range(26))] for i in range(lines))
        path = self.top / name
        path.write_bytes("".join("\t".join(row) + "\r\n" for row in rows).encode())
        return path

    def test_are_spoken_of_as_such(self):
        """In examples and clicks: no images, no files of MNIST."""
        flags = [*self.FLAGS, "--data", self.file("train.txt", 60)]
        done = self.good(*flags, "--json")
        self.assertRegex(done.stderr, r"epoch 1: .* examples/s")
        self.assertNotIn("images", done.stderr)
        self.assertNotIn("idx", done.stderr)
        self.assertIn("no test accuracy", done.stderr)
        self.assertIn("--test", done.stderr)
        self.assertIsNone(json.loads(done.stdout)["test_accuracy"])

    def test_have_a_test_file_and_the_area_under_its_curve(self):
        train, test = self.file("train.txt", 60), self.file("test.txt", 45)
        flags = [*self.FLAGS, "--data", train, "--test", test, "--log", self.top / "log",
                 "--checkpoints", self.top / "c"]
        done = self.good(*flags, "--json")
        self.assertRegex(done.stderr, r"test after 2 epochs: .*, AUC 0\.\d{4}")
        area = json.loads(done.stdout)["test_auc"]
        events = [json.loads(line) for line in (self.top / "log").read_text().splitlines()]
        self.assertEqual([event["auc"] for event in events if event["event"] == "evaluation"][-1], area)
        done = self.good("predict", "--checkpoints", self.top / "c")
        rows = list(csv.reader(io.StringIO(done.stdout)))[1:]
        self.assertEqual(len(rows), 45)
        self.assertIn("on criteo test.txt", done.stderr)
        self.assertIn(f"(AUC {area:.4f})", done.stderr)
        scores = [(float(row[3]), int(row[0]) % 3 == 0) for row in rows]
        pairs = [(p > n) + (p == n) / 2 for p, yes in scores if yes for n, other in scores if not other]
        self.assertAlmostEqual(sum(pairs) / len(pairs), area, delta=0.01)

    def test_files_that_cannot_be_are_refused(self):
        train = self.file("train.txt", 60)
        refused(self, [*self.FLAGS, "--test", train], 64, ["--test", "needs --data"])
        refused(self, ["train", *MLP, "--data", self.top, "--test", train], 64, ["--test", "beside the training data"])
        refused(self, [*self.FLAGS, "--data", train, "--test", self.top / "none"], 74, ["none", "cannot be opened"])
        train.write_text(train.read_text().replace("\t", ","))
        refused(self, [*self.FLAGS, "--data", train], 65, ["commas stand between its 40 fields"])


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
