#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lockstep serve: a server from flags or from TF_CONFIG alone, its status, and what is refused.

usage: serve_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import os
import signal
import socket
import subprocess
import sys
import time
from unittest import mock

import program
from program import PATIENCE, refused, run


def free_ports(count):
    """Ports that were free a moment ago, no two the same."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def tf_config(servers, job="ps", index=0):
    return json.dumps({"cluster": {"worker": ["127.0.0.1:1"], "ps": servers}, "task": {"type": job, "index": index}})


class Server:
    """A living server: its address, and its lines."""

    def __init__(self, case, *arguments, **environment):
        self.process = subprocess.Popen([program.LOCKSTEP, "serve", "--json", *map(str, arguments)], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **environment})
        case.addCleanup(self.end)
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.stderr.read())
        self.address = json.loads(line)["address"]
        self.port = int(self.address.rsplit(":", 1)[1])

    def end(self):
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate(timeout=PATIENCE)

    def ended(self):
        """What it left: exit code, lines of standard output, lines of standard error."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.splitlines(), err.splitlines()


class Serve(program.Case):
    def status(self, *arguments, code=0):
        done = run("serve", "--status", *arguments, "--json")
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout)["tasks"]

    def test_a_server_says_where_it_is_and_how(self):
        server = Server(self)
        self.assertEqual(self.status(server.address), [{"address": server.address, "status": {"containers": []}}])
        text = run("serve", "--status", server.address)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assertEqual(text.stdout, f"{server.address}: a server with no containers\n")

    def test_the_cluster_of_tf_config_alone(self):
        ports = free_ports(2)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        servers = [Server(self, TF_CONFIG=tf_config(addresses, index=i)) for i in range(2)]
        self.assertEqual([each.address for each in servers], addresses)
        with mock.patch.dict(os.environ, {"TF_CONFIG": tf_config(addresses, "worker")}):
            self.assertEqual([task["address"] for task in self.status("cluster")], addresses)
            servers[1].end()
            tasks = self.status("cluster", code=75)
        self.assertIn("status", tasks[0])
        self.assertIn(addresses[1], tasks[1]["error"])
        text = run("serve", "--status", ",".join(addresses))
        self.assertEqual(text.returncode, 75)
        self.assertIn(f"{addresses[0]}: a server with no containers\n{addresses[1]}: does not answer: ", text.stdout)

    def test_of_a_job_that_trains_counters_rise(self):
        ports = free_ports(3)
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports[:2]], "ps": [f"127.0.0.1:{ports[2]}"]}

        def config(job, index):
            return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}

        server = Server(self, **config("ps", 0))
        workers = [subprocess.Popen([program.LOCKSTEP, "train", "--strategy", "parameter_server", *program.ENDLESS, "--steps", "1000000"],
                                    env={**os.environ, **config("worker", i)}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for i in range(2)]
        for worker in workers:
            self.addCleanup(worker.communicate)
            self.addCleanup(worker.kill)
        seen = []
        end = time.monotonic() + PATIENCE
        while len(seen) < 2 or not all(worker["last"] > 0 for worker in seen[-1]["workers"]):
            self.assertLess(time.monotonic(), end, seen[-1:])
            self.assertEqual([worker.poll() for worker in workers], [None, None])
            containers = self.status(server.address)[0]["status"]["containers"]
            if containers and containers[0].get("job", {}).get("version", 0) > (seen[-1]["version"] if seen else 0):
                seen.append(containers[0]["job"])
        first, last = seen[0], seen[-1]
        self.assertGreater(last["pushes"]["applied"], first["pushes"]["applied"])
        self.assertGreater(last["bytes_pushed"], first["bytes_pushed"])
        self.assertEqual(len(last["workers"]), 2)
        self.assertGreaterEqual(last["staleness"]["steps"], last["version"])
        self.assertEqual(sum(last["staleness"]["histogram"]), last["staleness"]["steps"])
        text = run("serve", "--status", server.address)
        self.assertEqual(text.returncode, 0, text.stderr)
        self.assertIn("worker", text.stdout)

    def test_garbage_on_the_port_is_refused_and_the_server_lives(self):
        server = Server(self)
        inputs = [b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500]
        for garbage in inputs * 10:
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as connection:
                try:
                    connection.sendall(garbage)
                except ConnectionError:
                    pass
        self.assertEqual(self.status(server.address)[0]["status"], {"containers": []})

    def test_who_has_no_certificate_is_refused_and_the_server_lives(self):
        files = {}
        for name in ("ours", "others"):
            key, certificate = self.top / f"{name}.key", self.top / f"{name}.pem"
            made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                                   "-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={name}",
                                   "-addext", "subjectAltName=IP:127.0.0.1"], capture_output=True, text=True)
            if made.returncode != 0:
                self.skipTest(f"openssl makes no certificate: {made.stderr.strip()}")
            files[name] = (certificate, key)

        def tls(authority, name):
            return ["--tls-authority", files[authority][0], "--tls-certificate", files[name][0], "--tls-key", files[name][1]]

        server = Server(self, *tls("ours", "ours"))
        for stranger in ([], tls("ours", "others"), tls("others", "ours")):
            refused(self, ["serve", "--status", server.address, "--deadline", 5, *stranger], 75, [server.address])
        self.assertIn("status", self.status(server.address, *map(str, tls("ours", "ours")))[0])
        refused(self, ["serve", *tls("ours", "ours")[:4]], 64, ["three files", "key"])
        refused(self, ["serve", "--tls-authority", "/nowhere.pem", *tls("ours", "ours")[2:]], 74, ["/nowhere.pem"])

    def test_signals_and_silence_end_it(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            server = Server(self)
            server.process.send_signal(number)
            self.assertEqual(server.ended()[0], code)
        code, out, err = Server(self, "--life", 0.3).ended()
        self.assertEqual((code, out), (75, []))
        self.assertIn("heard nothing from anybody", err[-1])

    def test_a_server_that_is_killed_is_there_again(self):
        server = Server(self, "--restarts", 2, "--address", f"127.0.0.1:{free_ports(1)[0]}")
        for _ in range(2):
            os.kill(program.children(server.process.pid)[0], signal.SIGKILL)
            self.assertEqual(json.loads(server.process.stdout.readline()), {"address": server.address})
            self.assertIn("status", self.status(server.address)[0])
        os.kill(program.children(server.process.pid)[0], signal.SIGKILL)
        code, out, err = server.ended()
        self.assertEqual((code, out), (75, []))
        self.assertIn("all 2 restarts are used up", err[-1])
        server = Server(self, "--restarts", 2, "--address", f"127.0.0.1:{free_ports(1)[0]}")
        server.process.terminate()
        self.assertEqual(server.ended()[0], 143)

    def test_what_cannot_be_is_one_line(self):
        taken = Server(self)
        for arguments, code, words in (
                (["--address", "nowhere"], 64, ["'nowhere' is no address"]),
                (["--address", "127.0.0.1:99999"], 64, ["127.0.0.1:99999"]),
                (["--address", "0.0.0.0:0"], 64, ["without TLS", "--insecure"]),
                (["--address", taken.address], 74, [taken.address, "already in use"]),
                (["--life", "-1"], 64, ["--life"]),
                (["--restarts", "1"], 64, ["--restarts", "127.0.0.1:0", "--address"]),
                (["--restarts", "-1"], 64, ["--restarts"]),
                (["--memory-limit", "much"], 64, ["--memory-limit"]),
                (["--status", "nowhere"], 64, ["'nowhere' is no address"]),
                (["--status", taken.address + ","], 64, ["'' is no address"]),
                (["--status", "cluster"], 64, ["no TF_CONFIG"]),
                (["--status", taken.address, "--insecure"], 64, ["--insecure", "--status"]),
                (["--deadline", "1"], 64, ["--deadline", "--status"]),
                (["--status", f"127.0.0.1:{free_ports(1)[0]}"], 75, ["127.0.0.1:", "refused"])):
            refused(self, ["serve", *arguments], code, words)
        for text, words in (("{", ["TF_CONFIG is no JSON"]),
                            (tf_config(["127.0.0.1:2"], "worker"), ["/job:worker/task:0", "lockstep train"]),
                            (tf_config(["127.0.0.1:2"], index=7), ["index"])):
            with mock.patch.dict(os.environ, {"TF_CONFIG": text}):
                refused(self, ["serve"], 64, words)
        self.assertEqual(len(self.status(taken.address)), 1)


if __name__ == "__main__":
    sys.exit(0 if program.main(__doc__) else 1)
