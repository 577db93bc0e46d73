# SPDX-License-Identifier: MIT
"""Runs a command of lockstep on a layout of ranks: HOSTSxRANKS, or several with + between (2x3+1x1: two hosts of three
ranks and one of one). Hosts are virtual ones (tools/virtual_cluster.sh, which needs root), one host is this machine.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent


def one(text):
    """A layout, as a type of argparse."""
    if not re.fullmatch(r"[1-9]\d*x[1-9]\d*(\+[1-9]\d*x[1-9]\d*)*", text):
        raise argparse.ArgumentTypeError(f"must be HOSTSxRANKS, such as 1x2 or 2x3+1x1, not '{text}'")
    return text


def some(text):
    """Several, with commas between."""
    return [one(part) for part in text.split(",")]


def parser(words, flag, kind, default):
    """Of a script that takes a program of lockstep, layouts and the rate of a host's link."""
    flags = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("lockstep")
    flags.add_argument(flag, type=kind, default=default)
    flags.add_argument("--rate", default="1gbit")
    return flags


def ranks_of(layout):
    """The ranks of each host."""
    ranks = []
    for part in layout.split("+"):
        hosts, each = (int(number) for number in part.split("x"))
        ranks += [each] * hosts
    return ranks


def rows(lockstep, layout, rate, *arguments, command="bench"):
    """What `lockstep COMMAND --json` printed with these arguments, a dictionary of each line; `rate`: of a host's link.
    Ends the program where the run failed."""
    ranks = ranks_of(layout)
    words = [str(pathlib.Path(lockstep).resolve()), command, "--json", *arguments]
    if len(ranks) == 1:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        words = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(ranks[0]), *words]
    else:
        words = [str(TOP / "tools/virtual_cluster.sh"), "--hosts", str(len(ranks)), "--ranks-per-host",
                   ",".join(map(str, ranks)), "--rate", rate, "--", *words]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{layout}: {' '.join(words)} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
