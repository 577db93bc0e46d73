#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every C++ file is as clang-format writes it (.clang-format in the root).

usage: check_format.py ROOT

Versions of clang-format differ in what they write, so one version decides: 14. Where it is missing
this is skipped: exit code 77, the last line says why.
"""
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = 14
FOLDERS = ("engine", "collectives", "strategies", "models", "tools", "bench", "test")


def version_of(program):
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)", text)
    return int(match.group(1)) if match else None


def find_clang_format():
    """The program, and why there is none."""
    seen = []
    for name in (f"clang-format-{VERSION}", "clang-format"):
        program = shutil.which(name)
        if program:
            version = version_of(program)
            if version == VERSION:
                return program, None
            seen.append(str(version))
    return None, f"found version {', '.join(seen)}" if seen else "found none"


def check(root, program):
    files = [path for top in FOLDERS for path in sorted((root / top).rglob("*"))
             if path.suffix in (".h", ".cpp", ".cu", ".cuh")]
    if not files:
        return ["no files to check"]
    command = [program, "--dry-run", "-Werror", "--ferror-limit=1", "--style=file"]
    result = subprocess.run(command + [str(path) for path in files], cwd=root, capture_output=True,
                            text=True, check=False)
    offences = [line for line in result.stderr.splitlines() if ": error: " in line]
    if result.returncode != 0 and not offences:
        offences = [result.stderr]
    return offences


def main(arguments):
    if len(arguments) != 1:
        print("usage: check_format.py ROOT")
        return 2
    program, why = find_clang_format()
    if not program:
        print(f"formatting is checked with clang-format {VERSION}: {why}")
        return 77
    offences = check(pathlib.Path(arguments[0]).resolve(), program)
    print("\n".join(offences) if offences else "every file is formatted")
    if offences:
        print("clang-format -i FILE mends it")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
