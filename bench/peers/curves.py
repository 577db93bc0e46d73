#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws what all_reduce.py found: time over size, both logarithmic, a panel for each number of processes.

usage: curves.py ALL_REDUCE_JSON > ALL_REDUCE_SVG
"""
import json
import math
import sys
from html import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, GAP = 560, 420, 62, 74, 52, 20
COLOURS = {"lockstep": "#1b6ca8", "Open MPI": "#d9822b", "MPICH": "#8a4fbf", "Gloo": "#8a8f98"}
INK = "#1d2430"


def text(x, y, words, size=12, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" '
            f'fill="{INK}">{escape(words)}</text>')


def size_text(count):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:g} {unit}"
    return f"{count} B"


def panel(case, x0, low, high):
    table = case["table"]
    least, most = math.log2(table[0]["bytes"]), math.log2(table[-1]["bytes"])
    right = x0 + WIDTH - 16

    def x(count):
        return x0 + LEFT + (right - x0 - LEFT) * (math.log2(count) - least) / max(most - least, 1)

    def y(us):
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (math.log10(us) - low) / (high - low)

    parts = [text(x0 + LEFT, TOP - 14, f"{case['ranks']} processes on {case['cores']} cores", weight="bold")]
    for power in range(low, high + 1):
        at = y(10 ** power)
        parts.append(f'<path d="M{x0 + LEFT} {at:.1f}H{right}" stroke="#dddddd"/>')
        parts.append(text(x0 + LEFT - 8, at + 4, f"{10 ** power:,g}", anchor="end"))
    for row in table[::2]:
        parts.append(text(x(row["bytes"]), HEIGHT - BOTTOM + 18, size_text(row["bytes"]), 11, "middle"))
    parts.append(text((x0 + LEFT + right) / 2, HEIGHT - 14, "bytes of one rank", anchor="middle"))
    for name in reversed(case["libraries"]):
        points = " ".join(f"{x(row['bytes']):.1f},{y(row['us'][name]):.1f}" for row in table)
        width = 3 if name == "lockstep" else 1.8
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="{width}"/>')
    return parts


def draw(result):
    cases = result["cases"]
    times = [us for case in cases for row in case["table"] for us in row["us"].values()]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    width = len(cases) * WIDTH + GAP
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" '
             f'viewBox="0 0 {width} {HEIGHT}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
             f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
             text(16, 24, "All-reduce of float32 in place, microseconds", 15, weight="bold"),
             text(16, 42, f"{result['cpu']}, {result['when']}; medians, slowest rank", 11)]
    at = 430.0
    for name in cases[0]["libraries"]:
        parts.append(f'<path d="M{at} 20h22" stroke="{COLOURS[name]}" stroke-width="3"/>')
        parts.append(text(at + 28, 24, name))
        at += 50 + 8 * len(name)
    for index, case in enumerate(cases):
        parts += panel(case, index * WIDTH, low, high)
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: curves.py ALL_REDUCE_JSON > ALL_REDUCE_SVG")
    with open(sys.argv[1], encoding="utf-8") as file:
        print(draw(json.load(file)), end="")
