#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a libcuda.so.1 that has no GPU: enough for cuDNN to be asked what it can do on a GPU that is described.

usage: make_stub.py OUTPUT FOLDER COMPILER...

FOLDER holds cuDNN, or nothing of it: then it needs no functions. Which functions of the driver its libraries look up
is known from their names, which stand in the libraries as text. Each of them answers that there is no device, but for
the few that must answer before anybody asks for one. COMPILER is the command of a compiler that takes C, as g++ does.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

NAME = re.compile(rb"(?<=\0)cu[A-Z][A-Za-z0-9_]*(?=\0)")
ANSWERS = {
    "cuInit": "int cuInit(unsigned flags) { (void)flags; return 0; }",
    "cuDriverGetVersion": "int cuDriverGetVersion(int* version) { *version = 13000; return 0; }",
    "cuDeviceGetCount": "int cuDeviceGetCount(int* count) { *count = 0; return 0; }",
    "cuGetErrorName": 'int cuGetErrorName(int error, const char** text) { (void)error; *text = "stub"; return 0; }',
    "cuGetErrorString": 'int cuGetErrorString(int error, const char** text) { (void)error; *text = "stub"; return 0; }',
}
NO_DEVICE = 100


def names_in(folder):
    found = set()
    for library in sorted(folder.glob("libcudnn*.so.*")):
        found |= {name.decode() for name in NAME.findall(library.read_bytes())}
    return found


def source(names):
    others = [f"int {name}(void) {{ return {NO_DEVICE}; }}" for name in sorted(names - set(ANSWERS))]
    return "\n".join([*ANSWERS.values(), *others, ""])


def main():
    output, folder, *compiler = sys.argv[1:]
    with tempfile.TemporaryDirectory() as build:
        text = pathlib.Path(build) / "stub.c"
        text.write_text(source(names_in(pathlib.Path(folder))))
        # -w: the compiler has functions of its own of some of the names.
        command = [*compiler, "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-x", "c", text, "-o", output]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
