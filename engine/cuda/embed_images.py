#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes an assembler file that puts files into the program, as bytes that it can read and not change.

usage: embed_images.py OUTPUT NAME=FILE...

The bytes of FILE begin at the symbol NAME and end before NAME_end.
"""
import pathlib
import sys

HEAD = "# SPDX-License-Identifier: MIT\n"
# Modules are read from an address that is a multiple of 8; 64 is a line of the cache.
IMAGE = """
    .section .rodata
    .balign 64
    .global {name}
    .type {name}, %object
{name}:
    .incbin "{path}"
    .global {name}_end
{name}_end:
    .byte 0
    .size {name}, {name}_end - {name}
"""
# Without this section linkers believe that the program runs code on its stack.
TAIL = '\n    .section .note.GNU-stack, "", %progbits\n'


def assembler_of(images):
    parts = [IMAGE.format(name=name, path=pathlib.Path(path).resolve()) for name, path in images]
    return HEAD + "".join(parts) + TAIL


def main():
    output, *pairs = sys.argv[1:]
    text = assembler_of([pair.split("=", 1) for pair in pairs])
    pathlib.Path(output).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
