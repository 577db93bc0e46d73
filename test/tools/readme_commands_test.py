#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every command in an ```sh block of a README works: it runs here with fewer steps, or its programs, flags and names of
tests exist, or another test runs it.

usage: readme_commands_test.py SOURCE BUILD [PART...]     PART: a component that the build lacks, e.g. cuda
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
ABSENT = set(sys.argv[3:])
PATIENCE = 240  # seconds for one block; only a defect takes so long
# Commands that no test starts from here, and the reason. A command runs unless it begins with one of these.
ELSEWHERE = {
    "tools/quickstart.sh": "installs packages and builds",
    "tools/check.sh": "runs this test",
    "meson setup": "builds; install_test.py runs those of the section on installing",
    "meson configure": "install_test.py runs it",
    "meson install": "install_test.py does this below another folder",
    "ldconfig": "changes the system",
    "c++": "install_test.py runs it",
    "mpirun --oversubscribe --bind-to none -n 2 --allow-run-as-root ./program": "face_test.py runs the program",
    "OMP_NUM_THREADS=1 setarch -R meson test": "tools/check.sh --sanitize runs these tests",
    "tools/task_cluster.sh": "task_cluster_train.py runs it",
    "tools/virtual_cluster.sh": "virtual_cluster_test.py runs the script, which needs root",
}
# The parts without which tests, or commands, whose names begin so are not there.
PARTS = {"cuda": "cuda", "LOCKSTEP_FAKE_GPUS": "cuda", "servers": "grpc", "launched": "pmix",
         "mpirun": "mpi"}
# What makes commands shorter: a flag that is given twice counts as it is given last.
SHORTER = {
    "lockstep train": "--examples 400 --threads 1 --eval 0",
    "lockstep bench": "--iterations 2 --warmup 1 --max 64k --assumed",
    "bench_step": "--steps 12 --warm-up 2",
    "bench_update": "--steps 3",
}


def readmes():
    """The READMEs of the project: a build folder, or what is installed in one, has others."""
    folders = ("engine", "collectives", "strategies", "models", "tools", "test", "bench")
    return [SOURCE / "README.md", *(path for folder in folders for path in sorted((SOURCE / folder).glob("**/README.md")))]


def commands():
    """The README, its comment "# needs ..." if there is one, and the commands of a block, a line each but for quotes."""
    for path in readmes():
        for block in re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            needs, found = "", []
            for line in re.sub(r"\\\n\s*", "", block).splitlines():
                if found and found[-1].count('"') % 2:
                    found[-1] += "\n" + line
                elif line.startswith("# needs "):
                    needs = line
                elif not line.startswith("#"):
                    found += re.split(r" && ", re.sub(r"\s+# .*$", "", line))
            yield path.relative_to(SOURCE), needs, found


def introspect(what):
    done = subprocess.run(["meson", "introspect", what, str(BUILD)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(folder.cleanup)
        cls.top = pathlib.Path(folder.name)
        for name in ("tools", "test", "bench"):
            (cls.top / name).symlink_to(SOURCE / name)
        (cls.top / "build").symlink_to(BUILD)
        cls.tests = introspect("--tests")
        cls.targets = {pathlib.Path(name).name for target in introspect("--targets") for name in target["filename"]}
        cls.help = {}

    def test_each_block_has_a_language(self):
        for path in readmes():
            fences = re.findall(r"^```(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            self.assertNotIn("", fences[::2], path)
            self.assertEqual(set(fences[1::2]), {""} if fences else set(), path)

    def test_each_command(self):
        ran, excepted = 0, set()
        for path, needs, block in commands():
            ready = []
            for command in block:
                with self.subTest(f"{path}: {command}"):
                    self.flags_exist(command)
                    excepted |= {start for start in ELSEWHERE if command.startswith(start)}
                    if not self.looked_up(command) and not needs and not self.absent(command):
                        ready.append(self.shorter(command))
            ran += len(ready)
            with self.subTest(f"{path}: {ready}"):
                self.run_block(ready)
        self.assertEqual(excepted, set(ELSEWHERE), "each exception is for a command that a README has")
        self.assertGreaterEqual(ran, 20)

    def absent(self, command):
        """Whether it needs a part that the build lacks."""
        missing = {part for start, part in PARTS.items() if command.startswith(start)}
        if "parameter_server" in command:
            missing |= {"grpc", "pmix"}
        return bool(missing & ABSENT)

    def shorter(self, command):
        more = next((more for word, more in SHORTER.items() if word in command), "")
        if "lockstep train" in command:
            command = re.sub(r"--steps \d+", "--steps 7", re.sub(r"--epochs \d+", "--epochs 1", command))
        output = re.search(r"( > \S+)?$", command)
        return f"{command[:output.start()]} {more}{output[0]}" if more else command

    def looked_up(self, command):
        """Whether the command is not run: its names are compared with what there is, or another test runs it."""
        words = command.split()
        if command.startswith("meson test"):
            known = {test["name"] for test in self.tests} | {suite.split(":")[-1] for test in self.tests for suite in test["suite"]}
            for name in words[2:]:
                if not name.startswith("-") and name != "build" and not self.absent(name):
                    self.assertIn(name, known)
            return True
        if words[0] == "ninja" or command.startswith("meson compile"):
            targets = {pathlib.Path(word).name for word in words[2:] if not word.startswith("-") and word != "build"}
            self.assertLessEqual(targets, self.targets)
            return True
        if "--gtest_filter=" in command:
            program, pattern = words[0], command.split("--gtest_filter=")[1].strip("'")
            for one in pattern.split(":"):
                done = subprocess.run([self.top / program, "--gtest_list_tests", f"--gtest_filter={one}"], capture_output=True,
                                      text=True, timeout=PATIENCE)
                self.assertIn("\n  ", done.stdout, one)
            return True
        return any(command.startswith(start) for start in ELSEWHERE)

    def flags_exist(self, command):
        """Flags of the program stand in its --help, and scripts are files that know their flags."""
        found = re.search(r"(?:build/tools/lockstep|bench/lockstep_on_fake_gpus) (\w+)(.*)", command, re.DOTALL)
        if found:
            name = found[1]
            if name not in self.help:
                self.help[name] = subprocess.run([BUILD / "tools/lockstep", name, "--help"], capture_output=True, text=True).stdout
            for flag in re.findall(r"(?<= )--?[a-z][a-z0-9-]*", found[2]):
                self.assertRegex(self.help[name], rf"(?<![\w-]){flag}(?![\w-])", command)
        for script in re.findall(r"(?<![\w/-])(?:tools|bench|test)/\S+\.(?:sh|py)", command):
            text = (SOURCE / script).read_text(encoding="utf-8")
            for flag in re.findall(r"(?<= )--[a-z0-9-]+", command.split(script)[1].split(" -- ")[0]) if script.endswith(".sh") else ():
                self.assertIn(flag, text, command)

    def run_block(self, block):
        if not block:
            return
        done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", "\n".join(block)], cwd=self.top, capture_output=True, text=True,
                              timeout=PATIENCE, env={**os.environ, "XDG_CACHE_HOME": str(self.top / "cache")})
        self.assertEqual(done.returncode, 0, f"{block}\n{done.stdout}{done.stderr}")
        for folder in re.findall(r"--checkpoints (\S+)", "\n".join(block)):   # mpirun --enable-recovery hides failures
            self.assertTrue(list((self.top / folder).glob("step-*")), f"{block}\n{done.stdout}{done.stderr}")
        shutil.rmtree(self.top / "FOLDER", ignore_errors=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
