#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/virtual_cluster.sh: names, links, exit codes, and that nothing is left of it.

usage: virtual_cluster_test.py VIRTUAL_CLUSTER_SH

Needs root and network namespaces; elsewhere it is skipped: exit code 77, the last line says why.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

SCRIPT = str(pathlib.Path(sys.argv[1]).resolve())
DEADLINE = 60

# A rank says its host, its rank and the cluster's number, which is in its address.
WHO = 'echo "$(hostname) $OMPI_COMM_WORLD_RANK $(sed -n "s/^10.77.\\([0-9]*\\).* h0$/\\1/p" /etc/hosts)"'
# Rank 0 on h0 sends BYTES to rank 1 on h1, which answers with one byte; rank 0 says how long it took.
SEND = """
import os, socket, sys, time
count = int(sys.argv[1])
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    server = socket.create_server(("", 7777))
    peer, _ = server.accept()
    while count > 0:
        count -= len(peer.recv(min(count, 65536)))
    peer.sendall(b"x")
else:
    for _ in range(500):
        try:
            peer = socket.create_connection(("h1", 7777))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    begin = time.monotonic()
    peer.sendall(bytes(count))
    assert peer.recv(1) == b"x"
    print("seconds", time.monotonic() - begin)
"""


def cluster(*arguments, **options):
    return subprocess.run([SCRIPT, *arguments], text=True, capture_output=True, check=False,
                          timeout=DEADLINE, stdin=subprocess.DEVNULL, **options)


def said(*options, command):
    """What each rank of a cluster said, in the order of the ranks, and the run.

    A rank speaks into a file of its own: through mpirun the lines of several ranks may run into each other.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = cluster(*options, "--", "bash", "-c", f"( {command} ) > {folder}/$OMPI_COMM_WORLD_RANK")
        files = sorted(pathlib.Path(folder).iterdir(), key=lambda file: int(file.name))
        return [file.read_text() for file in files], result


def names(number):
    """The namespaces of a cluster."""
    listed = subprocess.run(["ip", "netns", "list"], text=True, capture_output=True, check=True).stdout
    return re.findall(rf"^lockstep-{number}-\w+", listed, re.MULTILINE)


def left_of(number):
    state = pathlib.Path(f"/run/lockstep-cluster/{number}")
    return names(number) + ([str(state)] if state.exists() else [])


class VirtualCluster(unittest.TestCase):
    def start(self):
        """A cluster that runs until it is killed; the process, and the cluster's number."""
        who = f"[ $OMPI_COMM_WORLD_RANK != 0 ] || {WHO}; sleep 1000"
        process = subprocess.Popen([SCRIPT, "--", "bash", "-c", who], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, DEADLINE)
        self.addCleanup(process.terminate)
        return process, int(process.stdout.readline().split()[2])

    def test_each_host_has_its_name_its_ranks_and_leaves_nothing(self):
        each, result = said("--hosts", "3", "--ranks-per-host", "2", command=WHO)
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line.split() for line in each]
        self.assertEqual([line[:2] for line in lines],
                         [["h0", "0"], ["h0", "1"], ["h1", "2"], ["h1", "3"], ["h2", "4"], ["h2", "5"]])
        self.assertEqual(left_of(lines[0][2]), [])

    def test_hosts_may_have_different_numbers_of_ranks(self):
        each, result = said("--hosts", "3", "--ranks-per-host", "2,1,1", command=WHO)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual([line.split()[:2] for line in each], [["h0", "0"], ["h0", "1"], ["h1", "2"], ["h2", "3"]])

    def test_a_link_is_as_slow_as_asked(self):
        count = 3_000_000
        result = cluster("--rate", "40mbit", "--", sys.executable, "-c", SEND, str(count))
        self.assertEqual(result.returncode, 0, result.stderr)
        seconds = float(result.stdout.split()[1])
        self.assertGreater(seconds, 0.9 * (count - 131072) / 5e6)  # the burst goes at once

    def test_the_exit_code_is_the_programs(self):
        self.assertEqual(cluster("--", "bash", "-c", "exit 3").returncode, 3)

    def test_hosts_share_the_cores_where_there_are_enough(self):
        mine = os.sched_getaffinity(0)
        show = f"{sys.executable} -c 'import os; print(sorted(os.sched_getaffinity(0)))'"
        for hosts in (1, 2, len(mine) + 1):
            with self.subTest(hosts=hosts):
                each, result = said("--hosts", str(hosts), command=show)
                self.assertEqual(result.returncode, 0, result.stderr)
                cores = [json.loads(line) for line in each]
                share = len(mine) // hosts
                self.assertEqual([len(each) for each in cores], [share or len(mine)] * hosts)
                if share:
                    held = [core for each in cores for core in each]
                    self.assertEqual(len(set(held)), len(held), "no core is two hosts'")

    def test_more_arguments_reach_mpirun(self):
        result = cluster("--hosts", "1", "--mpirun", "-x LOCKSTEP_WORD=yes --mca btl tcp,self", "--",
                         "bash", "-c", "echo $LOCKSTEP_WORD")
        self.assertEqual((result.returncode, result.stdout), (0, "yes\n"), result.stderr)

    def test_two_at_once_do_not_meet_and_a_signal_leaves_nothing(self):
        first, number = self.start()
        second, other = self.start()
        self.assertNotEqual(number, other)
        first.terminate()
        self.assertEqual(first.wait(DEADLINE), 143)
        self.assertEqual(left_of(number), [])
        self.assertEqual(len(names(other)), 3, "the other one still stands")
        second.send_signal(signal.SIGINT)
        self.assertEqual(second.wait(DEADLINE), 130)
        self.assertEqual(left_of(other), [])

    def test_what_a_killed_run_left_is_removed_by_the_next(self):
        process, number = self.start()
        process.kill()
        process.wait(DEADLINE)
        self.assertEqual(len(names(number)), 3)
        self.assertEqual(cluster("--", "true").returncode, 0)
        self.assertEqual(left_of(number), [])

    def test_bad_options_get_one_line_and_code_2(self):
        for arguments in [[], ["true"], ["--"], ["--hosts", "0", "--", "true"], ["--hosts", "65", "--", "true"],
                          ["--hosts"], ["--ranks-per-host", "x", "--", "true"],
                          ["--ranks-per-host", "1,2,3", "--", "true"], ["--rate", "1", "--", "true"],
                          ["--latency", "5", "--", "true"], ["--size", "3", "--", "true"],
                          ["--", "mpirun", "-n", "2", "true"], ["--", "/usr/bin/mpirun", "true"]]:
            with self.subTest(arguments=arguments):
                result = cluster(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)

    def test_without_root_one_line_and_code_77(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "id"
            program.write_text("#!/bin/sh\necho 1000\n")
            program.chmod(0o755)
            result = cluster("--", "true", env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        self.assertEqual(result.returncode, 77)
        self.assertEqual(result.stderr, "virtual_cluster: needs root, to make network namespaces\n")


    def test_a_message_takes_the_latency_both_ways_or_the_kernel_that_has_none_is_named(self):
        result = cluster("--latency", "30ms", "--", sys.executable, "-c", SEND, "1")
        if result.returncode == 77:
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
            self.assertIn("netem", result.stderr)
            return
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater(float(result.stdout.split()[1]), 0.060)


if __name__ == "__main__":
    probe = cluster("--", "true")
    if probe.returncode == 77:
        print(probe.stderr.strip())
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
