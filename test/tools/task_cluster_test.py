#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tools/task_cluster.sh with a pretended program, which says what it was given and does what $PLAN says.

usage: task_cluster_test.py TASK_CLUSTER_SH
"""
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import unittest

SCRIPT = str(pathlib.Path(sys.argv.pop(1)).resolve())
PATIENCE = 120  # seconds for anything; only a defect takes so long

# Says "COMMAND TF_CONFIG" in a file of its own. Then the first line of $PLAN that begins with its job and index,
# or *, is what it does.
PROGRAM = """#!/usr/bin/env python3
import json, os, pathlib, sys, time
config = json.loads(os.environ["TF_CONFIG"])
task = f"{config['task']['type']}{config['task']['index']}"
pathlib.Path(os.environ["SEEN"], task).write_text(json.dumps([sys.argv[1:], config]))
print("said by", task, file=sys.stderr, flush=True)
print("result of", task, flush=True)
plan = dict(line.split(" ", 1) for line in os.environ.get("PLAN", "").split(";") if line)
exec(plan.get(task, plan.get("*", "pass")))
"""


class TaskCluster(unittest.TestCase):
    def setUp(self):
        top = tempfile.TemporaryDirectory()
        self.addCleanup(top.cleanup)
        self.seen = pathlib.Path(top.name) / "seen"
        self.seen.mkdir()
        self.program = pathlib.Path(top.name) / "lockstep"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def start(self, *arguments, plan=""):
        process = subprocess.Popen([SCRIPT, "--program", self.program, *arguments], text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env={**os.environ, "SEEN": str(self.seen), "PLAN": plan})
        self.addCleanup(process.terminate)  # where the test failed: it ends its tasks
        return process

    def run_it(self, *arguments, plan=""):
        process = self.start(*arguments, plan=plan)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out.splitlines(), err.splitlines()

    def tasks(self):
        return {path.name: json.loads(path.read_text()) for path in self.seen.iterdir()}

    def test_six_tasks_each_with_the_same_cluster(self):
        code, out, err = self.run_it("--", "--model", "mlp", "--batch", "64")
        self.assertEqual((code, out), (0, ["result of worker0"]))
        self.assertEqual(sorted(err), sorted(f"{job} {i}: said by {job}{i}" for job, n in (("worker", 4), ("ps", 2))
                                             for i in range(n)))
        cluster = {"worker": [f"127.0.0.1:{2221 + i}" for i in range(4)], "ps": ["127.0.0.1:2225", "127.0.0.1:2226"]}
        train = ["train", "--strategy", "parameter_server", "--model", "mlp", "--batch", "64"]
        wanted = {f"{job}{i}": [command, {"cluster": cluster, "task": {"type": job, "index": i}}]
                  for job, n, command in (("worker", 4, train), ("ps", 2, ["serve", "--life", "60"])) for i in range(n)}
        self.assertEqual(self.tasks(), wanted)

    def test_printed_commands_start_the_same_tasks(self):
        code, out, _ = self.run_it("--workers", "2", "--servers", "1", "--port", "4000", "--print", "--", "--data", "a b")
        self.assertEqual((code, len(out), self.tasks()), (0, 3, {}))
        for line in out:
            subprocess.run(["bash", "-c", line], check=True, env={**os.environ, "SEEN": str(self.seen)}, timeout=PATIENCE,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        printed = self.tasks()
        self.assertEqual(self.run_it("--workers", "2", "--servers", "1", "--port", "4000", "--", "--data", "a b")[0], 0)
        self.assertEqual(self.tasks(), printed)
        self.assertEqual(printed["worker1"][0][-2:], ["--data", "a b"])
        self.assertEqual(shlex.split(out[0])[-3:], ["serve", "--life", "60"])

    def test_the_chiefs_code_is_the_jobs(self):
        self.assertEqual(self.run_it("--", plan="worker0 sys.exit(74)")[0], 74)

    def test_who_fails_is_named_while_the_job_runs(self):
        for plan, said in (("worker2 sys.exit(3);worker0 time.sleep(2)", "worker 2 ended with 3: the others go on"),
                           ("ps1 sys.exit(3);* time.sleep(1000)", "ps 1 ended with 3: without it the job ends")):
            code, _, err = self.run_it("--", plan=plan)
            self.assertEqual(code, 75)
            self.assertEqual([line for line in err if line.startswith("task_cluster")][0], f"task_cluster: {said}")

    def test_signals_reach_all_and_nobody_stays(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            process = self.start("--", plan="* time.sleep(1000)")
            said = {process.stderr.readline() for _ in range(6)}
            self.assertEqual(len(said), 6, said)
            process.send_signal(number)
            process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, code)
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                except OSError:
                    continue
                self.assertNotIn(str(self.program).encode(), command)

    def test_bad_options_are_one_line(self):
        for arguments, words in ((["--workers", "0", "--"], "--workers is 1 to 64"), (["--servers", "x", "--"], "--servers is 1 to 64"),
                                 (["--port", "65532", "--"], "--port 65532"), (["--port"], "--port wants a value"),
                                 (["train"], "unknown option 'train'"), (["--program", "/nowhere", "--"], "/nowhere is no program")):
            code, out, err = self.run_it(*arguments)
            self.assertEqual((code, out, len(err)), (2, [], 1), err)
            self.assertIn(words, err[0])
        self.assertEqual(self.tasks(), {})


if __name__ == "__main__":
    unittest.main()
