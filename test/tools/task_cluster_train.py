#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The command of the README: six tasks, each started by TF_CONFIG alone, train a network.

usage: task_cluster_train.py LOCKSTEP TASK_CLUSTER_SH README
"""
import json
import pathlib
import re
import shlex
import socket
import subprocess
import sys
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
        block = re.search(r"^```\n(tools/task_cluster\.sh .*?)^```", README, re.MULTILINE | re.DOTALL)[1]
        words = shlex.split(block.replace("\\\n", " "))
        at = words.index("--")
        done = subprocess.run([SCRIPT, "--program", LOCKSTEP, "--port", str(free_ports(6)), *words[1:at + 1], *words[at + 1:],
                               "--threads", "1", "--json"], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 1, done.stdout)
        result = json.loads(lines[0])
        self.assertEqual((result["strategy"], result["replicas"]), ("parameter_server", 4))
        self.assertGreater(result["test_accuracy"], 0.9)
        self.assertIn("all 2 servers are on this host", done.stderr)
        for server in range(2):
            self.assertIn(f"ps {server}: ", done.stderr)


if __name__ == "__main__":
    unittest.main()
