#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Joins static libraries into one.

usage: join_archives.py AR OUTPUT ARCHIVE...

Meson's own way, link_whole, names objects that are not there where units hold several sources (Meson 1.0).
"""
import pathlib
import subprocess
import sys


def main():
    archiver, output, *archives = sys.argv[1:]
    pathlib.Path(output).unlink(missing_ok=True)
    script = [f"create {output}"] + [f"addlib {archive}" for archive in archives] + ["save", "end"]
    return subprocess.run([archiver, "-M"], input="\n".join(script) + "\n", text=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
