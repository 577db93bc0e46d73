#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tasks that are started by TF_CONFIG alone: the command of the README trains a network with six, servers end with the chief, and
all end without it.

usage: task_cluster_train.py LOCKSTEP TASK_CLUSTER_SH README
"""
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

LOCKSTEP, SCRIPT, README = sys.argv.pop(1), sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).read_text(encoding="utf-8")
PATIENCE = 250  # seconds for anything; only a defect takes so long


def free_ports(count):
    """The first of so many ports, one behind the other, that were free a moment ago."""
    for first in range(20000, 30000, count):
        sockets = []
        try:
            for port in range(first, first + count):
                sockets.append(socket.socket())
                sockets[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            pass
        finally:
            for each in sockets:
                each.close()
    raise unittest.SkipTest("no free ports")


class Cluster(unittest.TestCase):
    def test_the_command_of_the_readme(self):
        block = re.search(r"^```sh\n(tools/task_cluster\.sh .*?)^```", README, re.MULTILINE | re.DOTALL)[1]
        words = shlex.split(block.replace("\\\n", " "))
        at = words.index("--")
        done = subprocess.run([SCRIPT, "--program", LOCKSTEP, "--port", str(free_ports(6)), *words[1:at + 1], *words[at + 1:],
                               "--threads", "1", "--json", "-v"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 1, done.stdout)
        result = json.loads(lines[0])
        self.assertEqual((result["strategy"], result["replicas"]), ("parameter_server", 4))
        self.assertGreater(result["test_accuracy"], 0.9)
        self.assertIn("all 2 servers are on this host", done.stderr)
        for server in range(2):
            self.assertIn(f"ps {server}: ", done.stderr)


    def test_ctrl_c_saves_and_says_so(self):
        """A terminal sends SIGINT to the script, its tasks and whatever reads their output."""
        with tempfile.TemporaryDirectory() as folder:
            running = subprocess.Popen(
                [SCRIPT, "--program", LOCKSTEP, "--port", str(free_ports(6)), "--", "--model", "mlp", "--threads", "1", "--examples",
                 "500", "--batch", "50", "--steps", "1000000", "--eval", "0", "--json", "--checkpoints", folder],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            self.addCleanup(running.kill)
            for line in running.stderr:
                if "epoch 1:" in line:
                    break
            os.killpg(running.pid, signal.SIGINT)
            out, said = running.communicate(timeout=PATIENCE)
            self.assertEqual(running.returncode, 130, said)
            self.assertRegex(said, "worker 0: .*stopped by SIG[A-Z]+ after step .*saved")
            # A shell lets its background jobs ignore SIGINT; the script ends them by SIGTERM.
            self.assertEqual(json.loads(out)["interrupted"], signal.SIGTERM)


class Ends(unittest.TestCase):
    def start(self, job, index, *arguments):
        port = self.port
        cluster = {"worker": [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"], "ps": [f"127.0.0.1:{port + 2}", f"127.0.0.1:{port + 3}"]}
        environment = dict(os.environ, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}))
        task = subprocess.Popen([LOCKSTEP, *map(str, arguments)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)
        self.addCleanup(task.communicate)
        self.addCleanup(task.kill)
        return task

    def begin(self, life, *arguments):
        self.port = free_ports(4)
        train = ["train", "--strategy", "parameter_server", "--model", "mlp", "--examples", "500", "--batch", "50", "--threads", "1",
                 *arguments]
        self.servers = [self.start("ps", i, "serve", "--life", life) for i in range(2)]
        self.chief, self.worker = (self.start("worker", i, *train) for i in range(2))

    def test_servers_end_with_the_chief(self):
        self.begin(PATIENCE, "--epochs", 2)
        _, said = self.chief.communicate(timeout=PATIENCE)
        self.assertEqual(self.chief.returncode, 0, said)
        ended = time.monotonic()
        for task in (*self.servers, self.worker):
            _, said = task.communicate(timeout=PATIENCE)
            self.assertEqual(task.returncode, 0, said)
        self.assertLess(time.monotonic() - ended, 5)

    def test_all_that_are_asked_to_end_save_first(self):
        with tempfile.TemporaryDirectory() as folder:
            self.begin(PATIENCE, "--steps", 1000000, "--eval", 0, "--checkpoints", folder)
            for line in self.chief.stderr:
                if line.startswith("epoch 1"):
                    break
            asked = time.time()
            for task in (*self.servers, self.worker, self.chief):
                task.terminate()
            for task, code in ((self.chief, 143), (self.worker, 143), *((server, 0) for server in self.servers)):
                _, said = task.communicate(timeout=PATIENCE)
                self.assertEqual(task.returncode, code, said)
            saved = [manifest.stat().st_mtime for manifest in pathlib.Path(folder).glob("step-*/manifest.json")]
            self.assertGreaterEqual(max(saved, default=0), asked)

    def test_without_the_chief_all_end_and_say_so(self):
        self.begin(3, "--steps", 1000000, "--eval", 0, "--deadline", 3)
        for line in self.chief.stderr:
            if line.startswith("epoch 1"):
                break
        self.chief.kill()
        killed = time.monotonic()
        for task, words in ((self.worker, "without the chief the job ends"), *((server, "the chief") for server in self.servers)):
            _, said = task.communicate(timeout=PATIENCE)
            self.assertEqual(task.returncode, 75, said)
            self.assertIn(words, said.splitlines()[-1])
        self.assertLess(time.monotonic() - killed, 3 + 3 + 10)  # the worker's calls keep the servers up


if __name__ == "__main__":
    unittest.main()
