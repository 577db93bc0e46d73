#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the form of the C++ files: licence line, length, #pragma once, nothing left to do, listed headers, and of
kernels that they use no function of <bit> that nvcc makes a constant of.

usage: check_form.py ROOT [--absent HEADER...] --headers HEADER...

HEADER are the headers that the build compiles alone; each header of the libraries must be among them, or
among those of optional parts that are absent from this build.
Prints one line for each offence; returns 1 when there is one.
"""
import argparse
import pathlib
import re
import sys

LIBRARIES = ("engine", "collectives", "strategies", "models")
FOLDERS = LIBRARIES + ("tools", "bench", "test")
LICENCE = "// SPDX-License-Identifier: MIT"
MOST_LINES = 500
LEFT_TO_DO = re.compile(r"\b(TODO|FIXME|XXX)\b")
KERNELS = "engine/cuda/kernels/"
# Their built-ins are unknown to nvcc 13.0 in code for a GPU: std::countr_zero(x) becomes 32, without a warning.
NOT_IN_KERNELS = re.compile(r"\bstd::(countr_\w+|countl_\w+|popcount|bit_width|bit_ceil|bit_floor|has_single_bit)\s*[<(]")


def check_text(path, text):
    lines = text.splitlines()
    if not lines or lines[0] != LICENCE:
        yield f"{path}:1: the first line is not '{LICENCE}'"
    if len(lines) > MOST_LINES:
        yield f"{path}:{MOST_LINES}: {len(lines)} lines, {MOST_LINES} are the most: split it by subject"
    again = path.endswith("-inl.h")   # included once for each instruction set
    if path.endswith((".h", ".cuh")) and not again and "#pragma once" not in lines:
        yield f"{path}:1: a header without #pragma once"
    for number, line in enumerate(lines, 1):
        left = LEFT_TO_DO.search(line)
        if left:
            yield f"{path}:{number}: {left.group()} is left in the file"
        wrong = NOT_IN_KERNELS.search(line) if path.startswith(KERNELS) else None
        if wrong:
            yield f"{path}:{number}: nvcc makes a constant of {wrong.group()}...): use what grid.cuh offers"


def check(root, headers, absent=()):
    root = pathlib.Path(root)
    found = set()
    for top in FOLDERS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
                continue
            name = path.relative_to(root).as_posix()
            yield from check_text(name, path.read_text(encoding="utf-8"))
            if path.suffix == ".h" and top in LIBRARIES and not name.endswith("-inl.h"):
                found.add(name)
    for name in sorted(found - set(headers) - set(absent)):
        yield f"{name}: is not in `headers` of its meson.build, so nobody compiles it alone"
    for name in sorted((set(headers) | set(absent)) - found):
        yield f"{name}: stands in `headers` of a meson.build and is not there"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root")
    parser.add_argument("--headers", nargs="*", default=[])
    parser.add_argument("--absent", nargs="*", default=[])
    options = parser.parse_args()
    offences = list(check(options.root, options.headers, options.absent))
    print("\n".join(offences) if offences else "every file has the form")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
