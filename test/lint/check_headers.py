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

# Compiled once each, for all headers that include them anyway; the larger ones first.
COMMON = (("engine/nn/graph.h",), ("engine/ops/ops.h",), ("engine/base/error.h",), ("<string>", "<vector>"), ("<string>",),
          ("<vector>",))


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
    """Of each header all those that it includes, directly or not, and those of the standard library."""
    direct = {header: [name.strip('"') for name in
                       re.findall(r'^#include (".+"|<[a-z_]+>)', (root / header).read_text(encoding="utf-8"), re.M)]
              for header in headers}
    known = {}

    def closure(header):
        if header not in known:
            known[header] = set()   # for circles
            known[header] = {each for other in direct[header] for each in
                             ({other} | closure(other) if other in direct else {other} if other[0] == "<" else set())}
        return known[header]
    return {header: closure(header) for header in headers}


def common_of(included, header):
    return next((common for common in COMMON if included[header].issuperset(common)), None)


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


def precompile(command, build, groups, folder):
    """Of each common group a line that includes what is compiled already."""
    lines = {}
    for number, group in enumerate(groups):
        file = pathlib.Path(folder) / f"{number}.h"
        text = "".join(f"#include {name}\n" if name[0] == "<" else f'#include "{name}"\n' for name in group)
        file.write_text(text, encoding="utf-8")
        subprocess.run([*command, "-x", "c++-header", str(file), "-o", f"{file}.gch"], capture_output=True, cwd=build,
                       check=False)
        lines[group] = f'#include "{file}"\n'
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
        units = chains(included)
        used = {common_of(included, unit[0]) for unit in units}
        ready = precompile(command, build, [group for group in COMMON if group in used], folder)
        return [text for texts in pool.map(check, units) for text in texts]


def main():
    build = pathlib.Path(sys.argv[2])
    headers = sys.argv[3:]
    offences = check_all(command_of(build), build, headers, pathlib.Path(sys.argv[1]))
    print("\n".join(offences) if offences else f"{len(headers)} headers compile alone")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
