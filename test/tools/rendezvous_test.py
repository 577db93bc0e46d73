#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Jobs whose processes no MPI connects: started by hand, by TF_CONFIG, and with the variables of torchrun and srun.

usage: rendezvous_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import program
from program import Case, ENDLESS, LONG, PATIENCE

TRAIN = ["train", *ENDLESS, "--epochs", "2", "--assumed", "--json"]
SECRET = "0123456789abcdef" * 4


def free_ports(count):
    """Ports that nobody listens at."""
    open_ones = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in open_ones]
    for one in open_ones:
        one.close()
    return ports


def by_hand(ports, rank):
    return {}, ["--rank", rank, "--ranks", len(ports), "--rendezvous", f"127.0.0.1:{ports[0]}"]


def by_tf_config(ports, rank):
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}})}, []


def by_torchrun(ports, rank):
    return {"RANK": rank, "WORLD_SIZE": len(ports), "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": len(ports),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ports[0], "TORCHELASTIC_RUN_ID": ports[0]}, []


def by_srun(ports, rank):
    return {"SLURM_JOB_ID": ports[0], "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": rank,
            "SLURM_STEP_NUM_TASKS": len(ports), "SLURM_STEP_NUM_NODES": 1, "SLURM_STEP_NODELIST": "localhost"}, []


LAUNCHERS = (by_hand, by_tf_config, by_torchrun, by_srun)


class Job:
    """The processes of a job, each started alone."""

    def __init__(self, launcher, processes, arguments, folder, variables=()):
        ports = free_ports(processes)
        self.processes = []
        for rank in range(processes):
            own, flags = launcher(ports, rank)
            environment = {**os.environ, **{name: str(value) for name, value in own.items()}, **dict(variables)}
            with open(folder / f"out{rank}", "w") as out, open(folder / f"err{rank}", "w") as errors:
                self.processes.append(subprocess.Popen([program.LOCKSTEP, *map(str, arguments), *map(str, flags)],
                                                       env=environment, stdout=out, stderr=errors))
        self.folder = folder

    def wait(self):
        codes = [process.wait(PATIENCE) for process in self.processes]
        return codes, [(self.folder / f"out{rank}").read_text() for rank in range(len(codes))], \
            [(self.folder / f"err{rank}").read_text() for rank in range(len(codes))]


class Rendezvous(Case):
    def weights(self, folder):
        newest = sorted(folder.glob("step-*"))[-1]
        return [path.read_bytes() for path in sorted(newest.glob("*.safetensors"))]

    def test_every_launcher_gives_the_bits_of_mpirun(self):
        self.good(*TRAIN, "--checkpoints", self.top / "mpi", prefix=program.mpirun(3))
        for launcher in LAUNCHERS:
            for secret in ((), (("LOCKSTEP_SECRET", SECRET),)):
                if secret and launcher is by_srun:
                    continue  # its first node is no name that this host listens at
                name = f"{launcher.__name__}{len(secret)}"
                job = Job(launcher, 3, [*TRAIN, "--checkpoints", self.top / name], self.top, secret)
                codes, out, errors = job.wait()
                self.assertEqual(codes, [0, 0, 0], f"{name}: {errors}")
                result = json.loads(out[0])
                self.assertEqual((result["strategy"], result["replicas"]), ("collective_all_reduce", 3), name)
                self.assertEqual(out[1:], ["", ""], name)
                self.assertEqual(self.weights(self.top / name), self.weights(self.top / "mpi"), name)

    def test_the_death_of_a_process_ends_all_and_names_it(self):
        for launcher in (by_hand, by_tf_config):
            job = Job(launcher, 3, ["train", *LONG, "--log", self.top / "log", "--checkpoints", self.top / launcher.__name__], self.top)
            begin = time.monotonic()
            while not (self.top / "log").exists() or "step" not in (self.top / "log").read_text():
                self.assertLess(time.monotonic() - begin, PATIENCE)
                time.sleep(0.01)
            job.processes[1].send_signal(signal.SIGKILL)
            begin = time.monotonic()
            codes, _, errors = job.wait()
            self.assertLess(time.monotonic() - begin, 2)
            self.assertEqual(codes, [75, -9, 75], errors)
            for rank in (0, 2):
                self.assertRegex(errors[rank], rf"rank 1 \(pid {job.processes[1].pid}\) died")
            (self.top / "log").unlink()

    def test_a_process_that_does_not_come_is_named(self):
        job = Job(by_hand, 3, [*TRAIN, "--deadline", "1"], self.top)
        job.processes[2].send_signal(signal.SIGKILL)
        codes, _, errors = job.wait()
        self.assertEqual(codes[:2], [75, 75], errors)
        self.assertTrue(re.search(r"process 2 of 3 did not reach process 0 on this host within 1 s|process 2 on host|rank 2", errors[0]), errors)

    def test_a_process_that_waits_for_the_first_says_that_it_has_not_been_started(self):
        _, flags = by_hand(free_ports(2), 1)
        done = program.run(*TRAIN, *flags, "--deadline", "1")
        self.assertEqual(done.returncode, 75)
        self.assertIn("did not reach process 0 on this host within 1 s: it has not been started", done.stderr)

    def test_signals_end_a_process_that_waits_for_others_at_once(self):
        for rank, number, wanted in ((0, signal.SIGTERM, 143), (0, signal.SIGINT, 130), (1, signal.SIGUSR1, 75)):
            _, flags = by_hand(free_ports(2), rank)
            waits = subprocess.Popen([program.LOCKSTEP, *TRAIN, *map(str, flags)], stderr=subprocess.DEVNULL)
            try:
                time.sleep(1)
                self.assertIsNone(waits.poll())
                begin = time.monotonic()
                waits.send_signal(number)
                self.assertEqual(waits.wait(PATIENCE), wanted)
                self.assertLess(time.monotonic() - begin, 1)
            finally:
                waits.kill()
                waits.wait()

    def test_a_wrong_secret_takes_no_part(self):
        ports = free_ports(2)
        started = []
        for rank, secret in ((0, SECRET), (1, SECRET[::-1])):
            _, flags = by_hand(ports, rank)
            started.append(subprocess.Popen([program.LOCKSTEP, *TRAIN, "--deadline", "1", *map(str, flags)], text=True,
                                            stderr=subprocess.PIPE, env={**os.environ, "LOCKSTEP_SECRET": secret}))
        errors = [one.communicate(timeout=PATIENCE)[1] for one in started]
        self.assertEqual([one.returncode for one in started], [75, 75], errors)
        self.assertIn("does not know the key of the job", errors[0])

    def test_what_cannot_be_is_refused(self):
        for flags, words in ((["--rank", "0"], ["--rank, --ranks and --rendezvous belong together"]),
                             (["--ranks", "2"], ["--rank, --ranks and --rendezvous belong together"]),
                             (["--rank", "2", "--ranks", "2", "--rendezvous", "h:1"], ["of 2 processes the last one is 1"]),
                             (["--rank", "0", "--ranks", "2", "--rendezvous", "nowhere"], ["an address and a port"]),
                             (["--rank", "1", "--ranks", "2", "--rendezvous", "10.0.0.1:2222"],
                              ["need a secret", "LOCKSTEP_SECRET", "--insecure"])):
            program.refused(self, [*TRAIN, "-q", *flags], 64, words)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
