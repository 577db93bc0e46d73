#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The README shows the command that tools/quickstart.sh trains with, and that of launchers explains each option of mpirun.
While it builds the script tells how far it is.

usage: quickstart_test.py QUICKSTART_SH README README_OF_LAUNCHERS
"""
import os
import pathlib
import pty
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

SCRIPT, README, LAUNCHERS = (pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:4])
BUILD_FOLDER = pathlib.Path(sys.argv[1]).parent.absolute() / "build_folder.sh"

# In place of ninja: three steps, of which the second has a warning, then what each test adds.
NINJA = """#!/bin/sh
echo "ninja: Entering directory \`build'"
echo "${NINJA_STATUS% }" >"$0.status"
echo "[1/3] Compiling C++ object a.o"
echo "[2/3] Compiling C++ object b.o"
echo "b.cpp:1: warning: [1/2] is odd"
echo "[3/3] Linking target lockstep"
"""


def of_the_script():
    """All that may go into `command`, but for --json, which is for the script itself."""
    parts = re.findall(r"command\+?=\((.*?)\)", SCRIPT, re.DOTALL)
    return [word for part in parts for word in shlex.split(part) if word != "--json"]


def section(readme, title):
    return re.search(rf"^## {title}\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)[1]


def of_the_readme():
    blocks = re.findall(r"^```sh\n(mpirun .*?)^```", section(README, "A job under a launcher"), re.MULTILINE | re.DOTALL)
    return [shlex.split(block.replace("\\\n", " ")) for block in blocks]


class Quickstart(unittest.TestCase):
    def test_the_readme_shows_its_command(self):
        self.assertEqual(of_the_readme(), [of_the_script()])

    def test_each_option_of_mpirun_is_explained_once(self):
        command = of_the_readme()[0]
        options = [word for word in command[:command.index("build/tools/lockstep")] if word.startswith("-")]
        explained = re.findall(r"^\| `(-[\w-]+)", section(LAUNCHERS, "mpirun"), re.MULTILINE)
        self.assertEqual(sorted(options), sorted(explained))


class Progress(unittest.TestCase):
    def compile(self, more="", seconds=3600, terminal=False):
        """The exit code, and what standard error was told, of a build of which that many seconds may be silent."""
        with tempfile.TemporaryDirectory() as top:
            ninja = pathlib.Path(top) / "ninja"
            ninja.write_text(NINJA + more, encoding="utf-8")
            ninja.chmod(0o755)
            here, there = pty.openpty() if terminal else os.pipe()
            code = subprocess.run(
                ["bash", "-c", f". {shlex.quote(str(BUILD_FOLDER))}; progress_seconds={seconds}; compile_aloud build x"],
                env={**os.environ, "PATH": f"{top}:{os.environ['PATH']}"}, stderr=there, check=False).returncode
            os.close(there)
            self.assertEqual((pathlib.Path(top) / "ninja.status").read_text(encoding="utf-8"), "[%f/%t]\n")
            told = b""
            try:
                while part := os.read(here, 4096):
                    told += part
            except OSError:  # how a terminal ends
                pass
            os.close(here)
            return code, told.decode().replace("\r\n", "\n")

    def lines(self):
        return [f"{share:3} % built, about 0:00 left" for share in (33, 66, 100)]

    def test_elsewhere_than_on_a_terminal_a_line_now_and_then(self):
        warning = "b.cpp:1: warning: [1/2] is odd\n"
        self.assertEqual(self.compile(), (0, warning))
        lines = self.lines()
        self.assertEqual(self.compile(seconds=0), (0, lines[0] + "\n" + lines[1] + "\n" + warning + lines[2] + "\n"))

    def test_the_time_left_is_what_the_rest_takes_at_the_speed_so_far(self):
        done = subprocess.run(["bash", "-c", f". {shlex.quote(str(BUILD_FOLDER))}; progress_text 30 40 241"], capture_output=True,
                              text=True, check=True)
        self.assertEqual(done.stdout, " 75 % built, about 1:20 left")

    def test_on_a_terminal_one_line_that_changes(self):
        code, told = self.compile(terminal=True)
        self.assertEqual(code, 0)
        first, second, third = self.lines()
        self.assertEqual(told.replace("\r\033[K", "|"),
                         f"|{first}|{second}|b.cpp:1: warning: [1/2] is odd\n|{third}\n")

    def test_what_goes_wrong_is_shown_and_is_the_exit_code(self):
        code, told = self.compile("echo 'FAILED: b.o'; echo 'b.cpp:2: error: no'; printf 'ninja: build stopped'; exit 3")
        self.assertEqual(code, 3)
        self.assertTrue(told.endswith("FAILED: b.o\nb.cpp:2: error: no\nninja: build stopped\n"), told)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
