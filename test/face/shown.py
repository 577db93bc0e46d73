#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails unless what a README shows of a program stands in that program: each line of a section's C++ block, in the
program's order, whatever the indentation. A line of the block that is `...` stands for any lines. `whole`: the block is the
program from its first #include on, line by line.

usage: shown.py README [whole] SECTION PROGRAM [[whole] SECTION PROGRAM]...
"""
import pathlib
import re
import sys


def blocks(readme, section):
    body = re.search(rf"^#+ {re.escape(section)}\n(.*?)(?=^#+ |\Z)", outside_code(readme), re.MULTILINE | re.DOTALL)
    if not body:
        return []
    return re.findall(r"^```cpp\n(.*?)^```", readme[body.start(1):body.end(1)], re.MULTILINE | re.DOTALL)


def outside_code(text):
    """The same text, with the `#` of code made blank: no headings."""
    return re.sub(r"^```.*?^```", lambda code: code[0].replace("#", " "), text, flags=re.MULTILINE | re.DOTALL)


def missing(block, program):
    """The first line of the block that the program lacks, or has only before the line above it."""
    left = iter([line.strip() for line in program.splitlines()])
    for line in block.splitlines():
        line = line.strip()
        if line in ("", "..."):
            continue
        if line not in left:  # goes on behind what it found
            return line
    return None


def main(readme, *words):
    text = pathlib.Path(readme).read_text(encoding="utf-8")
    bad, words = 0, list(words)
    while words:
        whole = words[0] == "whole"
        if whole:
            words.pop(0)
        section, path = words.pop(0), words.pop(0)
        program = pathlib.Path(path).read_text(encoding="utf-8")
        found = blocks(text, section)
        if not found:
            print(f"{readme}: no C++ in a section '{section}'")
            bad += 1
        for block in found:
            if whole and block != program[program.index("#include"):]:
                print(f"{readme}: '{section}' does not show {path} line by line")
                bad += 1
            line = missing(block, program)
            if line is not None:
                print(f"{readme}: '{section}' shows what is not in {path} there: {line}")
                bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
