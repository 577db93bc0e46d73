#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws results as SVG: training speed (compare.json), all-reduce (all_reduce.json), regrets (regrets.py --json).

usage: bench/plot.py RESULT_JSON > PICTURE_SVG
"""
import json
import math
import sys
from html import escape

INK, GREY, GRID = "#1d2430", "#666666", "#dddddd"
COLORS = {"lockstep": "#1b6ca8", "lockstep, recompute": "#7db1d6", "PyTorch": "#d9822b", "TensorFlow": "#8a8f98",
          "Open MPI": "#d9822b", "MPICH": "#8a4fbf", "Gloo": "#8a8f98"}
PALETTE = ["#1764ab", "#c1272d", "#2a8a3e", "#8a4fbf", "#c77700", "#00848c", "#b03a86"]
BAR, GAP, GROUP, LEFT, RIGHT = 18, 4, 14, 190, 640  # pixels; bars lie between the last two
COLUMNS = (740, 800, 900)  # right edges of the figures beside the bars
COUPLED = {"two processes": "processes", "two Mirrored replicas": "Mirrored", "two hosts": "hosts"}


def ticks(low, high, most, scale="linear"):
    """At most `most` round numbers from low to high: 1, 2 or 5 times a power of ten; powers of two for "sizes"."""
    if scale == "linear":
        steps = (factor * 10.0 ** power for power in range(-12, 13) for factor in (1, 2, 5))
        ends = ((step, math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)) for step in steps)
        step, first, last = next(end for end in ends if end[2] - end[1] < most)
        return [number * step for number in range(first, last + 1)]
    base = 2 if scale == "sizes" else 10
    powers = range(math.floor(math.log(low, base)), math.ceil(math.log(high, base)) + 1)
    choices = [[base ** power for power in powers if power % step == 0] for step in (1, 2, 4, 10)]
    if scale != "sizes":
        choices.insert(0, [factor * 10 ** power for power in powers for factor in (1, 2, 5)])
    inside = [[at for at in choice if low <= at <= high] for choice in choices]
    return next((choice for choice in inside if len(choice) <= most), inside[-1])


def size_text(count):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:g} {unit}"
    return f"{count:g} B"


def time_text(us):
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if us >= factor:
            return f"{us / factor:g} {unit}"
    return f"{us:g} us"


def rate(one):
    images = one["examples_per_second"]
    return f"{images:,.0f}" if images >= 100 else f"{images:.2f}"


class Drawing:
    def __init__(self, width):
        self.width, self.parts = width, []

    def text(self, x, y, words, size=12, anchor="start", weight="normal", color=INK):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'font-weight="{weight}" fill="{color}">{escape(words)}</text>')

    def line(self, points, color, width=1.0, more=""):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width}"{more}/>')

    def box(self, x, y, width, height, color, more=""):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                          f'fill="{color}"{more}/>')

    def key(self, x, y, name, color):
        self.line([(x, y - 4), (x + 22, y - 4)], color, 3)
        self.text(x + 28, y, name)

    def svg(self, height):
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height}" '
            f'viewBox="0 0 {self.width} {height}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
            f'<rect width="{self.width}" height="{height}" fill="white"/>', *self.parts, "</svg>", ""])


def axis(low, high, begin, end, logarithmic):
    scale = math.log if logarithmic else float
    return lambda value: begin + (end - begin) * (scale(value) - scale(low)) / (scale(high) - scale(low) or 1)


def chart(drawing, edges, sizes, values, logarithmic, label):
    """Draws grid and labels of a chart over sizes; returns functions from a size, and from a value, to pixels."""
    left, top, right, bottom = edges
    x, y = axis(sizes[0], sizes[-1], left, right, True), axis(*values, bottom, top, logarithmic)
    for at in ticks(*values, 11, "powers" if logarithmic else "linear"):
        drawing.line([(left, y(at)), (right, y(at))], GRID)
        drawing.text(left - 8, y(at) + 4, label(at), anchor="end")
    for at in ticks(sizes[0], sizes[-1], 8, "sizes"):
        drawing.line([(x(at), bottom), (x(at), bottom + 5)], INK)
        drawing.text(x(at), bottom + 20, size_text(at), anchor="middle")
    drawing.line([(left, bottom), (right, bottom)], INK)
    drawing.text((left + right) / 2, bottom + 40, "size of one rank's input", anchor="middle")
    return x, y


def regrets(found):
    """Choice's time over the best's, by size; `found`: layout -> rows of `lockstep bench --regret`."""
    drawing, edges = Drawing(900), (60, 60, 770, 400)
    sizes = sorted({row["bytes"] for rows in found.values() for row in rows})
    all_of_them = [row["regret"] for rows in found.values() for row in rows]
    values = math.floor(10 * min(0.95, *all_of_them)) / 10, math.ceil(10 * max(1.3, *all_of_them)) / 10
    y = axis(*values, edges[3], edges[1], False)
    for limit, shade in ((1.25, "#f0f0f0"), (1.1, "#e0e0e0")):
        drawing.box(edges[0], y(limit), edges[2] - edges[0], y(1) - y(limit), shade)
        drawing.text(edges[2] - 6, y(limit) + 14, f"within {round(100 * limit - 100)} %", 11, "end", color=GREY)
    x, y = chart(drawing, edges, sizes, values, False, "{:g}".format)
    drawing.text(16, 24, "Time of the automatic choice over that of the best algorithm", 15, weight="bold")
    drawing.text(16, 42, "a line for each layout, hosts x ranks", 11)
    for number, (layout, rows) in enumerate(found.items()):
        color = PALETTE[number % len(PALETTE)]
        drawing.line([(x(row["bytes"]), y(row["regret"])) for row in rows], color, 2)
        for row in rows:
            drawing.parts.append(
                f'<circle cx="{x(row["bytes"]):.1f}" cy="{y(row["regret"]):.1f}" r="3" fill="{color}"><title>{layout}, '
                f'{size_text(row["bytes"])}: {row["algorithm"]}, best {row["best"]}</title></circle>')
        drawing.key(edges[2] + 16, edges[1] + 10 + 20 * number, layout, color)
    return drawing.svg(460)


def all_reduce(result):
    """Time over size, a chart for each number of processes."""
    cases = result["cases"]
    drawing = Drawing(570 * len(cases))
    times = [us for case in cases for row in case["table"] for us in row["us"].values()]
    values = 10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times)))
    drawing.text(16, 24, "Time of an all-reduce of float32 in place", 15, weight="bold")
    drawing.text(16, 42, f"{result['cpu']}, {result['when']}; medians, slowest rank", 11)
    at = 430
    for name in cases[0]["libraries"]:
        drawing.key(at, 24, name, COLORS[name])
        at += 50 + 8 * len(name)
    for index, case in enumerate(cases):
        left, table = 570 * index + 66, case["table"]
        x, y = chart(drawing, (left, 78, left + 476, 368), [row["bytes"] for row in table], values, True, time_text)
        drawing.text(left, 66, f"{case['ranks']} processes on {case['cores']} cores", weight="bold")
        for name in reversed(case["libraries"]):
            drawing.line([(x(row["bytes"]), y(row["us"][name])) for row in table], COLORS[name],
                         3 if name == "lockstep" else 1.8)
    return drawing.svg(424)


def bars(drawing, top, heading, most, columns, groups):
    """Draws groups of bars below `top`: (title, second title, [(label, ratio, color, figures of the columns)]), with a
    dashed line at 1, on an axis up to `most`. Returns the lower edge."""
    x = axis(0, most, LEFT, RIGHT, False)
    drawing.text(16, top + 24, heading, 15, weight="bold")
    y = top + 56
    bottom = y + sum(len(group[2]) * (BAR + GAP) + GROUP for group in groups) - GROUP
    for at in ticks(0, most, 6):
        drawing.text(x(at), top + 46, f"{at:g}", 11, "middle", color=GREY)
        drawing.line([(x(at), top + 50), (x(at), bottom)], GRID)
    for right, words in zip(COLUMNS, columns):
        drawing.text(right, top + 46, words, 11, "end", color=GREY)
    for title, second, members in groups:
        drawing.text(16, y + 13, title, 13, weight="bold")
        drawing.text(16, y + BAR + GAP + 13, second, 11)
        for label, ratio, color, figures in members:
            drawing.text(LEFT - 8, y + 13, label, 13, "end")
            drawing.box(LEFT, y, max(x(ratio) - LEFT, 1), BAR, color, ' rx="2"')
            for right, words in zip(COLUMNS, figures):
                drawing.text(right, y + 13, words, 13, "end", "bold" if color == COLORS["lockstep"] else "normal")
            y += BAR + GAP
        y += GROUP
    drawing.line([(x(1), top + 52), (x(1), bottom)], INK, 1, ' stroke-dasharray="3 3"')
    return bottom


def of_case(case):
    base = case["contestants"][case["result"]["over"]]["examples_per_second"]
    members = []
    for name, one in case["contestants"].items():
        ratio = one["examples_per_second"] / base
        memory = f"{one['peak_mib']:,.0f} MiB" if one.get("peak_mib") else ""
        members.append((name, ratio, COLORS[name], (rate(one), f"{ratio:.2f}", memory)))
    return case["model"], case["dtype"] if case["dtype"] != "float32" else "", members


def training(result):
    """Images a second over those of the faster peer, and of coupled replicas over uncoupled ones."""
    memory = any(one.get("peak_mib") for case in result["cases"] for one in case["contestants"].values())
    drawing = Drawing(920 if memory else 820)
    most = max([1.0] + [case["result"]["ratio"] for case in result["cases"]])
    drawing.text(16, 28, "Training speed of lockstep" + (" and its peers" if result["cases"] else ""), 17, weight="bold")
    drawing.text(16, 47, f"{result['cpu']}, float32 where nothing else is said, {result['when']}; medians of "
                 f"{result['rounds']} rounds in turn", 11)
    y = 56
    for processes, words in ((1, "One core"), (2, "Two processes, one core each")):
        cases = [case for case in result["cases"] if case["processes"] == processes]
        if cases:
            y = bars(drawing, y, words + ": times as fast as the faster peer (dashed)", most,
                     ("images/s", "ratio", "memory" if memory else ""), [of_case(case) for case in cases]) + 8
    shares = {}
    for share in result["shares"]:
        ratio = share["result"]["ratio"]
        shares.setdefault(share["model"], []).append(
            (COUPLED[share["result"]["of"]], ratio, COLORS["lockstep"], ("", f"{ratio:.2f}")))
    if shares:
        y = bars(drawing, y, "lockstep on two cores: coupled replicas over uncoupled ones (dashed)",
                 max([1.0] + [share["result"]["ratio"] for share in result["shares"]]), ("", "ratio"),
                 [(model, "", members) for model, members in shares.items()])
    return drawing.svg(y + 16)


def draw(result):
    if "shares" in result:
        return training(result)
    return all_reduce(result) if "cases" in result else regrets(result)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: bench/plot.py RESULT_JSON > PICTURE_SVG")
    with open(sys.argv[1], encoding="utf-8") as file:
        print(draw(json.load(file)), end="")
