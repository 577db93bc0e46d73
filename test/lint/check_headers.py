#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles each header alone, and twice in one unit, so that a missing include or guard shows.

usage: check_headers.py ROOT BUILD HEADER...

HEADER are paths from ROOT. The compiler and its flags are those by which BUILD compiles headers_alone.cpp, without
precompiled headers; no code is generated. Prints what the compiler says; returns 1 when a header does not compile.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


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


def check(command, build, header):
    text = f'#include "{header}"\n' * 2
    done = subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=text, capture_output=True, text=True,
                          cwd=build, check=False)
    return "" if done.returncode == 0 else f"{header}: does not compile alone\n{done.stderr}"


def check_all(command, build, headers):
    """What is wrong with the headers, as many at once as there are cores."""
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [text for text in pool.map(lambda header: check(command, build, header), headers) if text]


def main():
    build = pathlib.Path(sys.argv[2])
    headers = sys.argv[3:]
    offences = check_all(command_of(build), build, headers)
    print("\n".join(offences) if offences else f"{len(headers)} headers compile alone")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
