#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles each header alone, and twice in one unit, so that a missing include or guard shows.

What stands before a header hides nothing if the header includes it anyway: so headers of which each includes
the one before share a unit, and a common one that all of them include is compiled once for many.

usage: check_headers.py ROOT BUILD HEADER...

HEADER are paths from ROOT. The compiler and its flags are those by which BUILD compiles headers_alone.cpp, without
precompiled headers; no code is generated. Prints what the compiler says; returns 1 when a header does not compile.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

COMMON = ("engine/ops/ops.h", "engine/base/error.h")   # compiled once each; the larger first


def command_of(build):
    """The compiler with its flags, without what names files."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    words = next(shlex.split(entry["command"]) for entry in commands if "headers_alone" in entry["file"])
    kept = []
    skip = False
    for word in words[:-2]:   # the last two are -c and the source
        takes_next = word in ("-o", "-MF", "-MQ")
        if not (skip or takes_next or word in ("-MD", "ccache") or word.startswith("-fdiagnostics-color")):
            kept.append(word)
        skip = takes_next
    return kept


def compile_headers(command, build, headers, first=""):
    text = first + "".join(f'#include "{header}"\n' * 2 for header in headers)
    return subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, capture_output=True, text=True,
                          cwd=build, check=False)


def closures(root, headers):
    """Of each header all those that it includes, directly or not."""
    direct = {header: re.findall(r'^#include "(.+)"', (root / header).read_text(encoding="utf-8"), re.M)
              for header in headers}
    known = {}

    def closure(header):
        if header not in known:
            known[header] = set()   # for circles
            known[header] = {each for other in direct[header] if other in direct for each in {other} | closure(other)}
        return known[header]
    return {header: closure(header) for header in headers}


def common_of(included, header):
    return next((common for common in COMMON if common in included[header]), None)


def chains(included):
    """The headers in lists, in which each is included by the next and all include the same common one: the longest
    lists first."""
    left = sorted(included, key=lambda header: -len(included[header]))
    found = []
    while left:
        chain = [left.pop(0)]
        common = common_of(included, chain[0])
        while below := [header for header in left
                        if header in included[chain[-1]] and common_of(included, header) == common]:
            left.remove(below[0])
            chain.append(below[0])
        found.append(chain[::-1])
    return found


def precompile(command, build, headers, folder):
    """Of each header a line that includes what is compiled already."""
    lines = {}
    for number, header in enumerate(headers):
        file = pathlib.Path(folder) / f"{number}.h"
        file.write_text(f'#include "{header}"\n', encoding="utf-8")
        subprocess.run([*command, "-x", "c++-header", str(file), "-o", f"{file}.gch"], capture_output=True, cwd=build,
                       check=False)
        lines[header] = f'#include "{file}"\n'
    return lines


def check_all(command, build, headers, root=None):
    """What is wrong with the headers, as many at once as there are cores."""
    included = closures(root or build, headers)

    def check(unit):
        first = ready.get(common_of(included, unit[0]), "")
        if compile_headers(command, build, unit, first).returncode == 0:
            return []
        alone = {header: compile_headers(command, build, [header]) for header in unit}
        return [f"{header}: does not compile alone\n{done.stderr}"
                for header, done in alone.items() if done.returncode != 0]

    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        ready = precompile(command, build, [header for header in COMMON if header in included], folder)
        return [text for texts in pool.map(check, chains(included)) for text in texts]


def main():
    build = pathlib.Path(sys.argv[2])
    headers = sys.argv[3:]
    offences = check_all(command_of(build), build, headers, pathlib.Path(sys.argv[1]))
    print("\n".join(offences) if offences else f"{len(headers)} headers compile alone")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
