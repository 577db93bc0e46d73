#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program that the README shows, as one or as several processes: it learns, one process prints, and an error is
one line and an exit code.

usage: face_test.py PROGRAM [MPIRUN MPIRUN_ARGUMENT...]
"""
import re
import subprocess
import sys

PATIENCE = 300  # seconds; only a defect takes so long
command = sys.argv[2:] + [sys.argv[1]]


def run(*arguments):
    done = subprocess.run(command + list(arguments), capture_output=True, text=True, timeout=PATIENCE)
    return done, f"{' '.join(command)}: code {done.returncode}\n{done.stdout}{done.stderr}"


done, told = run()
accuracies = re.findall(r"^accuracy (\d\.\d{4})$", done.stdout, re.MULTILINE)
epochs = re.findall(r"^epoch (\d): loss \d+\.\d{4}$", done.stdout, re.MULTILINE)
if done.returncode != 0 or epochs != ["1", "2", "3"] or len(accuracies) != 1 or len(re.findall("all-reduce: |parameter_server: ", done.stdout)) != 1:
    sys.exit(told)
if float(accuracies[0]) <= 0.85:
    sys.exit(f"it learned nothing\n{told}")

done, told = run("/nowhere")
if done.returncode != 1 or done.stdout or not re.search("^.*/nowhere.*$", done.stderr, re.MULTILINE):
    sys.exit(f"of a folder that is not there: {told}")
if len(sys.argv) == 2 and done.stderr.count("\n") != 1:
    sys.exit(f"more than a line: {told}")
