#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every kind of bad input: one line that says what was wrong and what would be right, the exit code, nothing on
standard output, and the folder of checkpoints as it was. Prints each line.

usage: bad_input.py LOCKSTEP [NAMES OF TESTS]
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import unittest
import zlib

import program

SMALL = [*program.SMALL, "--eval", "0"]
ENDLESS = [*program.ENDLESS, "--eval", "0"]
CHECKPOINT = 6 << 20  # bytes of one of mlp, and some more
LINES = []  # what was said: (input, exit code, line)


def content(folder):
    """All files below a folder, with their bytes."""
    top = pathlib.Path(folder)
    return {str(path.relative_to(top)): path.read_bytes() if path.is_file() else None for path in top.rglob("*")}


def steps(folder):
    return sorted(path.name for path in pathlib.Path(folder).glob("step-*"))


def idx(path, extents, values, extra=b""):
    path.write_bytes(struct.pack(">I", 0x800 + len(extents)) + b"".join(struct.pack(">I", e) for e in extents) +
                     bytes(values) + extra)


def digits(folder):
    """Sixty images and labels, as people have them."""
    folder.mkdir()
    for part in ("train", "t10k"):
        idx(folder / f"{part}-images-idx3-ubyte", (60, 28, 28), (i % 251 for i in range(60 * 28 * 28)))
        idx(folder / f"{part}-labels-idx1-ubyte", (60,), (i % 10 for i in range(60)))
    return folder


@contextlib.contextmanager
def mounted(case, folder, options):
    """A small disk, in memory."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        case.skipTest(f"a file system cannot be mounted here: {done.stderr.strip() or 'no root'}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


class Case(program.Case):
    def refused(self, name, code, words, *arguments, prefix=(), keeps=None):
        """Runs it; the one line. `keeps`: a folder that must hold afterwards what it held."""
        before = content(keeps) if keeps else None
        done = program.run(*arguments, prefix=prefix)
        lines = [line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(lines), 1, done.stderr)
        for word in words:
            self.assertIn(word, lines[0])
        if keeps:
            self.assertEqual(content(keeps), before)
        LINES.append((name, code, lines[0].replace(str(self.top), "TMP")))
        return done


class Data(Case):
    def test_files_of_images_and_labels(self):
        images, labels = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"

        def case(name, code, words, change):
            folder = digits(self.top / name.replace(" ", "-"))
            change(folder)
            self.refused(name, code, words, "train", *program.MLP, "--batch", "20", "--data", folder, "--checkpoints",
                         self.top / "none")
            self.assertFalse((self.top / "none").exists())

        case("an IDX file is missing", 74, [labels, "is missing"], lambda f: (f / labels).unlink())
        case("a truncated IDX file", 65, [images, "need 47056 bytes", "has 47000"],
             lambda f: os.truncate(f / images, 47000))
        case("an oversized IDX file", 65, [images, "need 47056 bytes", "has 47060"],
             lambda f: (f / images).write_bytes((f / images).read_bytes() + b"more"))
        case("an IDX file that promises too much", 65, [images, "4294967295x28x28"],
             lambda f: idx(f / images, (0xffffffff, 28, 28), b"pixels"))
        case("a label out of range", 65, [labels, "label 200 of example 7", "below 10"],
             lambda f: idx(f / labels, (60,), [200 if i == 7 else 1 for i in range(60)]))
        case("images and labels of different counts", 65, [labels, "59 labels", "60 images", images],
             lambda f: idx(f / labels, (59,), [1] * 59))

    def test_more_replicas_than_examples(self):
        self.refused("more replicas than examples", 64, ["4 replicas", "3 examples", "at most 3"],
                     "train", *SMALL, "--examples", "3", "--batch", "3", "--replicas", "4")

    def test_more_replicas_than_the_batch_has_examples_is_no_error(self):
        said = self.good("train", *ENDLESS, "--batch", "3", "--replicas", "4", "--steps", "2").stderr
        warnings = [line for line in said.splitlines() if "--batch" in line]
        self.assertEqual(len(warnings), 1, said)
        for word in ("--batch 3", "1 of the 4 replicas", "idle", "--batch 4 or more"):
            self.assertIn(word, warnings[0])
        self.assertNotIn("--batch", self.good("train", *ENDLESS, "--batch", "4", "--replicas", "4", "--steps", "2").stderr)


class Flags(Case):
    def test_flags(self):
        self.refused("an unknown flag", 64, ["--bogus", "lockstep train --help"], "train", *SMALL, "--bogus", "3")
        self.refused("--batch 0", 64, ["--batch", "from 1 to", "'0'"], "train", *SMALL, "--batch", "0")
        self.refused("an unknown network interface", 64, ["no network interface 'eth77'", "there are:", "lo"],
                     "train", *SMALL, "--interface", "eth77")
        self.refused("ports that are none", 64, ["--ports", "40000-40100", "'5-4'"], "train", *SMALL, "--ports", "5-4")
        self.refused("an unknown transport", 64, ["--transport", "auto, tcp or mpi"],
                     "train", *SMALL, "--transport", "pigeon")
        self.refused("an end by steps and by epochs", 64, ["--steps 5 and --epochs 2", "leave the other out"],
                     "train", *ENDLESS, "--steps", "5", "--epochs", "2")
        for where in ("random", "a-folder"):
            self.refused(f"digits drawn beside --data {where}", 64, ["--examples 30", f"--data {where}", "one of them"],
                         "train", *program.MLP, "--examples", "30", "--data", where)
        self.refused("steps of no profile", 64, ["--profile-steps 5 without --profile", "name a file"],
                     "train", *SMALL, "--profile-steps", "5")
        self.refused("ports of another transport", 64, ["ports", "transport tcp"],
                     "train", *SMALL, "--transport", "mpi", "--ports", "40000")
        for command in ("plan", "bench"):
            for flags, words in ((["--transport", "pigeon"], ["--transport", "auto, tcp or mpi"]),
                                 (["--interface", "eth77"], ["eth77"]),
                                 (["--transport", "mpi", "--ports", "40000"], ["ports", "transport tcp"])):
                self.refused(f"{command} with {flags[0]} {flags[1]}", 64, words, command, "--assumed", *flags)
        self.refused("a network beside --topology", 64, ["--topology", "--ports has no effect"],
                     "plan", "--topology", "1x4", "--ports", "40000")
        for flags in (["--momentum", "0.5"], ["--nesterov"]):
            self.refused(f"adam with {flags[0]}", 64, ["adam", flags[0], "--optimizer sgd"],
                         "train", *SMALL, "--optimizer", "adam", *flags)
        for flags in (["--nesterov"], ["--clip", "1"], ["--update", "fused"], ["--decay-all", "--weight-decay", "0.1"],
                      ["--strategy", "parameter_server"]):
            self.refused(f"lars with {' '.join(flags)}", 64, ["lars", flags[0]],
                         "train", *SMALL, "--optimizer", "lars", *flags)
        for value in ("", "0", "-1", "nan", "inf", "4x", "dynamically"):
            self.refused(f"a loss scale of '{value}'", 64, [f"--loss-scale '{value}'", "from 2^-14 to 2^64, or dynamic"],
                         "train", *SMALL, "--loss-scale", value)
        for value in ("1e-20", "1e39"):
            self.refused(f"a loss scale of {value}", 64, [f"a loss scale of {value[:2]}", "from 2^-14 to 2^64"],
                         "train", *SMALL, "--loss-scale", value)
        self.refused("a loss scale with servers", 64, ["--loss-scale", "leave it out"],
                     "train", *SMALL, "--strategy", "parameter_server", "--loss-scale", "8")
        self.refused("float16 on a processor", 64, ["--dtype float16", "cpu:0 has no kernels", "give another --dtype"],
                     "train", *SMALL, "--dtype", "float16")
        self.refused("trust of sgd", 64, ["--trust", "--optimizer lars"], "train", *SMALL, "--trust", "0.01")
        self.refused("decay of all without decay", 64, ["--decay-all", "--weight-decay"], "train", *SMALL, "--decay-all")
        file = self.top / "flags.json"
        file.write_text('{"interface": "eth77"}')
        self.refused("a file of flags with an unknown interface", 64, ["eth77", "flags.json gives interface"],
                     "train", *SMALL, "--config", file)
        file.write_text('{"epocs": 6}')
        self.refused("a file of flags with an unknown key", 64, ["flags.json", '"epocs"', "lockstep train --help"],
                     "train", "--config", file)
        file.write_text('{"epochs": 2, "steps": 5}')
        self.refused("a file of flags with both ends", 64, ["--steps 5 and --epochs 2", "flags.json gives epochs, steps"],
                     "train", *ENDLESS, "--config", file)
        self.refused("a file of flags without end", 74, ["/dev/zero", "but a device"], "train", "--config", "/dev/zero")

    def test_a_loss_that_becomes_nan(self):
        self.refused("a loss that becomes NaN", 64, ["not finite at step", "dense", "smaller rate"],
                     "train", *SMALL, "--rate", "1e30")

    def test_processes_with_different_flags(self):
        if not program.HAVE_MPI:
            self.skipTest("mpirun is missing, or lockstep was built without MPI")
        flags = ["train", *SMALL, "--strategy", "collective_all_reduce"]
        for name, flag, values, words in [("ranks with different rates", "--rate", ("0.1", "0.2"), ["0.1", "0.2"]),
                                          ("ranks with different batches", "--batch", ("50", "60"), ["50", "60"]),
                                          ("ranks with different models", "--model", ("mlp", "lenet5"),
                                           ["'model lenet5: ", "'model mlp: "]),
                                          ("ranks with different epochs", "--epochs", ("1", "2"),
                                           ["'epochs: 2' and not 'epochs: 1'"]),
                                          ("ranks that save at different steps", "--every", ("2", "3"),
                                           ["'every: 3' and not 'every: 2'"])]:
            where = ["--checkpoints", self.top / "e"] if flag == "--every" else []
            self.refused(name, 64, words, *flags, *where, flag, values[0], ":", "-n", "1", program.LOCKSTEP, *flags,
                         *where, flag, values[1], prefix=program.mpirun(1))
            self.assertLessEqual(LINES[-1][2].count(" and not "), 1 if flag == "--model" else 3, LINES[-1])
        one, other = self.top / "c", self.top / "d"
        for name, first, second, words in [
                ("ranks with and without checkpoints", [], ["--checkpoints", one],
                 [f"'checkpoints: {one}' and not 'checkpoints: none'"]),
                ("ranks with different folders of checkpoints", ["--checkpoints", other], ["--checkpoints", one],
                 [f"'checkpoints: {one}' and not 'checkpoints: {other}'"]),
                ("ranks with and without a profile", ["--profile", one], [],
                 ["'profile: none' and not 'profile: 20 steps'"])]:
            self.refused(name, 64, words, *flags, *first, ":", "-n", "1", program.LOCKSTEP, *flags, *second,
                         prefix=program.mpirun(1))


class BetweenHosts(Case):
    """What only the strategy can refuse, when it knows all ranks: nothing is left of what was made before."""

    def test_no_folder_of_checkpoints_is_left(self):
        flags = ["train", *SMALL, "--strategy", "collective_all_reduce", "--assumed", "--checkpoints"]
        cluster = [pathlib.Path(__file__).parents[2] / "tools/virtual_cluster.sh", "--hosts", "2", "--"]
        if subprocess.run([*cluster, "true"], capture_output=True).returncode == 77:
            self.skipTest("no virtual hosts here")
        for name, words, more in [
                ("an update that is fused and clipped, between hosts", ["fused", "clipped norm", "use separate"],
                 ["--update", "fused", "--clip", "1"]),
                ("direct in a rule, between hosts", ["direct", "one host"], ["--algorithm", "direct:..64k,ring:64k.."])]:
            done = program.run(*flags, self.top / "runs/digits", *more, prefix=cluster)
            lines = {line for line in done.stderr.splitlines() if line.startswith("lockstep: ")}  # each host may speak
            self.assertEqual((done.returncode, done.stdout, len(lines)), (64, "", 1), done.stderr)
            for word in words:
                self.assertIn(word, *lines)
            self.assertEqual(content(self.top), {})
            LINES.append((name, done.returncode, *lines))


class Checkpoints(Case):
    def setUp(self):
        super().setUp()
        self.folder = self.top / "runs"

    def trained(self, *flags):
        self.good("train", *SMALL, "--checkpoints", self.folder, *flags)
        return max(self.folder.glob("step-*"))

    def test_one_flipped_byte(self):
        shard = next(self.trained().glob("*.safetensors"))
        bits = bytearray(shard.read_bytes())
        bits[len(bits) // 2] ^= 0xff
        shard.write_bytes(bits)
        for command in (["train", *ENDLESS, "--steps", "20"], ["predict"]):
            self.refused(f"{command[0]} from a checkpoint with one flipped byte", 65,
                                [shard.name, "checksum"], *command, "--checkpoints", self.folder, keeps=self.folder)

    def test_another_model(self):
        self.trained()
        self.refused("a checkpoint of another model", 64, ["another model", "'model mlp", "'model lenet5", "folder"],
                     "train", *SMALL, "--model", "lenet5", "--checkpoints", self.folder, keeps=self.folder)

    def test_a_later_format(self):
        manifest = self.trained() / "manifest.json"
        body = manifest.read_bytes().split(b"\n", 1)[1].replace(b'"version": 1,', b'"version": 2,')
        manifest.write_bytes(b'{"crc32": "%08x",\n' % zlib.crc32(body) + body)
        for command in (["train", *ENDLESS, "--steps", "20"], ["predict"]):
            self.refused(f"{command[0]} from a checkpoint of a later format", 64, ["version 2", "up to 1"], *command,
                         "--checkpoints", self.folder, keeps=self.folder)

    def test_a_folder_that_cannot_be_written(self):
        (self.top / "file").write_text("text")
        self.refused("a folder of checkpoints below a file", 74, ["file/below", "not a folder"], "train", *SMALL, "--checkpoints",
                     self.top / "file" / "below", keeps=self.top)
        self.refused("a folder of checkpoints where none can be made", 74, ["/proc/below", "can be written"],
                     "train", *SMALL, "--checkpoints", "/proc/below")
        if program.HAVE_MPI:
            self.refused("the same, two processes", 74, ["/proc/below", "can be written"], "train", *SMALL,
                         "--strategy", "collective_all_reduce", "--checkpoints", "/proc/below", prefix=program.mpirun(2))

    def test_a_read_only_disk(self):
        with mounted(self, self.top / "disk", "ro,size=1m") as disk:
            self.refused("a folder of checkpoints on a read-only disk", 74, ["disk", "Read-only", "can be written"],
                         "train", *SMALL, "--checkpoints", disk / "runs", keeps=disk)

    def test_an_immutable_folder(self):
        self.folder.mkdir()
        if shutil.which("chattr") is None or subprocess.run(["chattr", "+i", str(self.folder)],
                                                            capture_output=True).returncode != 0:
            self.skipTest("no folder can be made immutable here")
        self.addCleanup(subprocess.run, ["chattr", "-i", str(self.folder)], check=True)
        self.refused("an immutable folder of checkpoints", 74, ["not permitted", "can be written"], "train", *SMALL,
                     "--checkpoints", self.folder, keeps=self.folder)

    def test_a_full_disk_leaves_the_older_checkpoint(self):
        for strategy in ("mirrored", "collective_all_reduce") if program.HAVE_MPI else ("mirrored",):
            prefix = program.mpirun(2) if strategy == "collective_all_reduce" else ()
            with self.subTest(strategy), mounted(self, self.top / strategy, f"size={CHECKPOINT * 3 // 2}") as disk:
                flags = ["train", *ENDLESS, "--strategy", strategy, "--checkpoints", disk / "runs", "--every", "2"]
                long = [*flags, "--steps", "6"]
                self.refused(f"a disk with room for one of two, {strategy}", 74, ["no room for checkpoints", "are free"], *long,
                             prefix=prefix, keeps=disk)
                self.good(*flags, "--steps", "2", prefix=prefix)
                self.refused(f"a full disk, {strategy}", 74, ["no room for checkpoints", "are free"], *long, prefix=prefix)
                self.assertEqual(steps(disk / "runs"), ["step-0000000002"])   # whole, and nothing beside it
                self.good("predict", "--checkpoints", disk / "runs")
                subprocess.run(["mount", "-o", f"remount,size={CHECKPOINT * 9}", str(disk)], check=True)
                done = self.good(*long, "--json", prefix=prefix)
                self.assertEqual(json.loads(done.stdout)["first_step"], 2)

    def test_a_disk_with_room_for_two(self):
        with mounted(self, self.top / "disk", f"size={CHECKPOINT * 5 // 2}") as disk:
            flags = ["train", *ENDLESS, "--every", "1", "--checkpoints", disk / "runs"]
            words = ["no room for checkpoints", "keep 2 at most"]
            self.refused("a disk with room for two of three", 74, words, *flags, "--steps", "6", keeps=disk)
            self.good(*flags, "--steps", "2")
            self.refused("the same, with two there", 74, words, *flags, "--steps", "6", keeps=disk)
            self.good(*flags, "--steps", "6", "--keep", "2")
            self.assertEqual(steps(disk / "runs"), ["step-0000000005", "step-0000000006"])

    def test_a_disk_that_is_full_at_the_start(self):
        with mounted(self, self.top / "disk", "size=64k,nr_inodes=64") as disk:
            with contextlib.suppress(OSError):
                (disk / "fill").write_bytes(bytes(1 << 20))
            self.refused("a disk that is full at the start", 74, ["No space left", "room"], "train", *SMALL,
                         "--checkpoints", disk / "runs")
            self.assertEqual(steps(disk / "runs"), [])


class Memory(Case):
    CNN = ["train", "--model", "mnist_cnn", "--threads", "1", "--steps", "1", "--eval", "0",
           "--data", "random"]

    def fits(self, line):
        return int(re.search(r"largest batch that fits is (\d+)", line)[1])

    def test_more_than_the_limit(self):
        limit = ["--memory-limit", str(200 << 20)]
        words = ["batch 5000", "the output of pool, 5000x12x12x64", "limit is 200 MiB"]
        self.refused("more memory than --memory-limit", 74, words, *self.CNN, "--batch", "5000", *limit)
        fits = self.fits(LINES[-1][2])
        self.good(*self.CNN, "--batch", fits // 2, *limit)
        if program.HAVE_MPI:
            self.refused("the same, two processes", 74, ["batch 5000", "2500x12x12x64", "limit is 200 MiB"], *self.CNN,
                         "--batch", "5000", *limit, "--strategy", "collective_all_reduce", prefix=program.mpirun(2))
        self.refused("a limit below what the program has", 74, ["no batch fits"], *self.CNN, "--batch", "1",
                     "--memory-limit", "1000000")

    def test_more_than_the_system_gives(self):
        if shutil.which("prlimit") is None:
            self.skipTest("prlimit is missing")
        prefix = ["prlimit", f"--as={3 << 30}"]
        self.refused("too little memory", 74, ["the output of pool", "are free"], *self.CNN, "--batch", "50000",
                     prefix=prefix)
        self.good(*self.CNN, "--batch", self.fits(LINES[-1][2]) // 2, prefix=prefix)


if __name__ == "__main__":
    good = program.main(__doc__)
    for name, code, line in LINES:
        print(f"{name} ({code})\n    {line}")
    sys.exit(not good)
