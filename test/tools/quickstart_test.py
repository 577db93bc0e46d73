#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The README shows the command that tools/quickstart.sh trains with, and explains each option of mpirun in it.

usage: quickstart_test.py QUICKSTART_SH README
"""
import pathlib
import re
import shlex
import sys
import unittest

SCRIPT, README = (pathlib.Path(path).read_text(encoding="utf-8") for path in sys.argv[1:3])


def of_the_script():
    """All that may go into `command`, but for --json, which is for the script itself."""
    parts = re.findall(r"command\+?=\((.*?)\)", SCRIPT, re.DOTALL)
    return [word for part in parts for word in shlex.split(part) if word != "--json"]


def of_the_readme():
    section = re.search(r"^## Two commands\n(.*?)^## ", README, re.MULTILINE | re.DOTALL)[1]
    blocks = re.findall(r"^```\n(mpirun .*?)^```", section, re.MULTILINE | re.DOTALL)
    return [shlex.split(block.replace("\\\n", " ")) for block in blocks], section


class Quickstart(unittest.TestCase):
    def test_the_readme_shows_its_command(self):
        commands, _ = of_the_readme()
        self.assertEqual(commands, [of_the_script()])

    def test_each_option_of_mpirun_is_explained_there_once(self):
        commands, section = of_the_readme()
        options = [word for word in commands[0][:commands[0].index("build/tools/lockstep")] if word.startswith("-")]
        explained = re.findall(r"^\| `(-[\w-]+)", section, re.MULTILINE)
        self.assertEqual(sorted(options), sorted(explained))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
