#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails unless the given programs differ from the first one in exactly one line each.

usage: differ.py PROGRAM PROGRAM...
"""
import pathlib
import sys

programs = [pathlib.Path(path).read_text().splitlines() for path in sys.argv[1:]]
first, bad = programs[0], 0
for path, lines in zip(sys.argv[2:], programs[1:]):
    different = [number for number, (a, b) in enumerate(zip(first, lines), 1) if a != b]
    if len(lines) != len(first) or len(different) != 1:
        print(f"{path}: differs from {sys.argv[1]} in lines {different}, and has {len(lines)} lines")
        bad += 1
    else:
        print(f"{path}: line {different[0]} differs: {lines[different[0] - 1].strip()}")
sys.exit(1 if bad or len(programs) < 2 else 0)
