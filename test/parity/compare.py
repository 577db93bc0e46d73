#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares two CSV files of logits, in any order of rows: compare.py OURS THEIRS TOLERANCE.

The tolerance is relative to the largest logit of all. Exit 1 where they differ by more, or in which
examples they hold."""
import csv
import sys


def read(path):
    with open(path, newline="") as file:
        rows = csv.DictReader(file)
        columns = [name for name in rows.fieldnames if name[0] == "l"]
        return {int(row["index"]): [float(row[name]) for name in columns] for row in rows}


def main():
    ours, theirs, tolerance = read(sys.argv[1]), read(sys.argv[2]), float(sys.argv[3])
    if not ours or ours.keys() != theirs.keys():
        sys.exit(f"{sys.argv[1]} holds {len(ours)} examples, {sys.argv[2]} {len(theirs)}, and they are not the same")
    scale = max(abs(value) for row in theirs.values() for value in row)
    worst, index = max((abs(a - b) / scale, index)
                       for index in ours for a, b in zip(ours[index], theirs[index], strict=True))
    print(f"{len(ours)} examples, logits up to {scale:.3g}: largest difference {worst:.2e} of that, in example {index}")
    if not worst <= tolerance:
        sys.exit(f"more than {tolerance}")


if __name__ == "__main__":
    main()
