#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the program writes holds nothing up and does not kill it: readers that go or stand still, limits of file sizes.

usage: streams_test.py LOCKSTEP [NAMES OF TESTS]
"""
import os
import resource
import signal
import subprocess
import sys
import threading
import time

import program
from program import Case, ENDLESS, PATIENCE, SMALL, whole

QUICK = ["--model", "mlp", "--examples", "60", "--batch", "4", "--eval", "0", "--threads", "1"]
TALKATIVE = [*QUICK, "--steps", "900"]   # its log is larger than a pipe holds: 64 KiB


def limited(size):
    """For a child: files may have so many bytes, and more kills whoever does not ignore that."""
    def apply():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return apply


class Readers(Case):
    def train(self, *flags, **streams):
        return subprocess.run([program.LOCKSTEP, "train", *flags], timeout=PATIENCE, stdin=subprocess.DEVNULL, text=True,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams})

    def fifo(self, read):
        """A FIFO, and a thread that reads so many bytes of it and goes."""
        path = self.top / "fifo"
        os.mkfifo(path)

        def body():
            with open(path, "rb", 0) as file:
                file.read(read)
        threading.Thread(target=body, daemon=True).start()
        return path

    def test_a_log_whose_reader_has_gone(self):
        done = self.train(*TALKATIVE, "--log", self.fifo(1000))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("no process reads it; events are lost, training goes on"), 1, done.stderr)

    def test_a_log_whose_reader_stands_still(self):
        path = self.top / "fifo"
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        done = self.train(*TALKATIVE, "--log", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("its reader stands still; events are lost"), 1, done.stderr)

    def test_standard_error_whose_reader_stands_still(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        os.set_blocking(writer, False)
        try:
            while os.write(writer, b"x" * 4096):   # until it is full
                pass
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        with open(writer, "wb", 0) as full:
            done = self.train(*QUICK, "--steps", "20", "--json", stderr=full)
            self.assertEqual(done.returncode, 0)
            self.assertIn('"steps":20', done.stdout)
            self.assertTrue(os.get_blocking(writer))   # others write there too

    def test_standard_error_whose_reader_has_gone(self):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "wb", 0) as gone:
            folder = self.top / "c"
            done = self.train(*QUICK, "--steps", "20", "--checkpoints", folder, stderr=gone)
            self.assertEqual((done.returncode, whole(folder)[-1]), (0, 20))

    def test_results_that_nobody_reads_are_an_error(self):
        self.good("train", *SMALL, "--checkpoints", self.top / "c")
        for arguments in (["train", *SMALL, "--json"], ["predict", "--checkpoints", self.top / "c"], ["doctor"],
                          ["plan", "--topology", "1x2"], ["--help"], ["train", "--help"],
                          *(["bench", "--max", "4k", "--iterations", "1", *flags]
                            for flags in ([], ["--regret"], ["--overlap"], ["--reproducible", "-q"]))):
            begin = time.monotonic()
            reader, writer = os.pipe()
            os.close(reader)
            with open(writer, "wb", 0) as gone:
                done = subprocess.run([program.LOCKSTEP, *map(str, arguments)], stdout=gone, stderr=subprocess.PIPE,
                                      text=True, timeout=PATIENCE)
            self.assertEqual(done.returncode, 74, f"{arguments}: {done.stderr}")
            self.assertLess(time.monotonic() - begin, 30, arguments)   # no rank waits for its deadline
            self.assertIn("lockstep: the reader of standard output has closed it; the rest of the result is lost", done.stderr)


class Limits(Case):
    def train(self, size, *flags):
        return subprocess.run([program.LOCKSTEP, "train", *ENDLESS, "--eval", "0", *map(str, flags)], capture_output=True,
                              text=True, timeout=PATIENCE, preexec_fn=limited(size))

    def test_logs_and_summaries_are_cut_and_training_goes_on(self):
        for flag in ("--log", "--summary"):
            done = self.train(20000, "--steps", "300", flag, self.top / flag[2:])
            self.assertEqual(done.returncode, 0, f"{flag}: {done.stderr}")
            self.assertEqual(done.stderr.count("File too large"), 1, done.stderr)

    def test_a_checkpoint_that_cannot_be_written_is_an_error_and_leaves_what_was_there(self):
        folder = self.top / "c"
        self.assertEqual(self.train(1 << 30, "--steps", "5", "--checkpoints", folder).returncode, 0)
        done = self.train(100000, "--steps", "10", "--checkpoints", folder)
        self.assertEqual(done.returncode, 74, done.stderr)
        self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("lockstep: ")]), 1, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(whole(folder), [5])


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
