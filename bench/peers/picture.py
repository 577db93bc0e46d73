#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws what compare.py found: horizontal bars, SVG, nothing needed but Python.

usage: picture.py COMPARE_JSON > COMPARE_SVG

The bars of one group are images a second over those of its faster peer, so that models of different
sizes share one axis; beside them the most memory of one process. Shares of uncoupled replicas are drawn against 1.
"""
import json
import sys
from html import escape

WIDTH, LEFT, RIGHT = 920, 190, 250
BAR, GAP, GROUP = 18, 4, 18
COLOURS = {"lockstep": "#1b6ca8", "lockstep, recompute": "#7db1d6", "PyTorch": "#d9822b", "TensorFlow": "#8a8f98"}
INK = "#1d2430"


class Drawing:
    def __init__(self):
        self.bars, self.lines, self.texts, self.y = [], [], [], 16

    def text(self, x, y, words, size=13, anchor="start", weight="normal"):
        self.texts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
                          f'font-weight="{weight}" fill="{INK}" stroke="white" stroke-width="3" '
                          f'paint-order="stroke">{escape(words)}</text>')

    def heading(self, words):
        self.y += 18
        self.text(16, self.y, words, size=15, weight="bold")
        self.y += 14

    def bar(self, label, length, colour, words):
        middle = self.y + BAR * 0.72
        self.text(LEFT - 8, middle, label, anchor="end")
        self.bars.append(f'<rect x="{LEFT}" y="{self.y}" width="{max(length, 1):.1f}" height="{BAR}" rx="2" '
                         f'fill="{colour}"/>')
        self.text(LEFT + length + 8, middle, words)
        self.y += BAR + GAP

    def line_at(self, x, top):
        self.lines.append(f'<line x1="{x:.1f}" y1="{top - GAP}" x2="{x:.1f}" y2="{self.y}" stroke="{INK}" '
                         f'stroke-dasharray="3 3"/>')

    def svg(self):
        height = self.y + 16
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *self.bars, *self.lines, *self.texts, "</svg>", ""])


def rate(one):
    images = one["images_per_second"]
    return f"{images:,.0f}" if images >= 100 else f"{images:.2f}"


def draw_cases(drawing, cases, most):
    unit = (WIDTH - LEFT - RIGHT) / most
    for case in cases:
        top = drawing.y
        contestants = case["contestants"]
        base = contestants[case["result"]["over"]]["images_per_second"]
        drawing.text(16, drawing.y + BAR * 0.72, case["model"], weight="bold")
        if case["dtype"] != "float32":
            drawing.text(16, drawing.y + BAR + GAP + BAR * 0.72, case["dtype"], size=11)
        for name, one in contestants.items():
            share = one["images_per_second"] / base
            words = f"{rate(one)} images/s"
            words += f", {share:.2f}x" if name == "lockstep" else ""
            words += f", {one['peak_mib']:,.0f} MiB" if one.get("peak_mib") else ""
            drawing.bar(name, share * unit, COLOURS[name], words)
        drawing.line_at(LEFT + unit, top)
        drawing.y += GROUP - GAP


def draw_shares(drawing, shares):
    unit = (WIDTH - LEFT - RIGHT) / max([1.0] + [s["result"]["ratio"] for s in shares])
    last = None
    top = drawing.y
    for share in shares:
        if last not in (None, share["model"]):
            drawing.line_at(LEFT + unit, top)
            drawing.y += GROUP - GAP
            top = drawing.y
        if last != share["model"]:
            drawing.text(16, drawing.y + BAR * 0.72, share["model"], weight="bold")
        last = share["model"]
        coupled = share["result"]["of"]
        drawing.bar({"two processes": "processes", "two Mirrored replicas": "Mirrored", "two hosts": "hosts"}[coupled],
                    share["result"]["ratio"] * unit, COLOURS["lockstep"], f"{share['result']['ratio']:.3f}")
    drawing.line_at(LEFT + unit, top)


def draw(result):
    drawing = Drawing()
    drawing.heading("Training steps: images/s; the dashed line is the faster peer" if result["cases"]
                    else "Training steps of lockstep")
    drawing.text(16, drawing.y + 6, f"{result['cpu']}, float32 where nothing else is said, {result['when']}; "
                 f"medians of {result['rounds']} rounds in turn", size=11)
    drawing.y += 10
    most = max([1.0] + [c["result"]["ratio"] for c in result["cases"]])
    for processes, words in ((1, "One core"), (2, "Two processes, one core each")):
        cases = [c for c in result["cases"] if c["processes"] == processes]
        if cases:
            drawing.heading(words)
            draw_cases(drawing, cases, most)
    if result["shares"]:
        drawing.heading("lockstep on two cores: coupled; the dashed line is two that are not coupled")
        draw_shares(drawing, result["shares"])
    return drawing.svg()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: picture.py COMPARE_JSON > COMPARE_SVG")
    with open(sys.argv[1], encoding="utf-8") as file:
        print(draw(json.load(file)), end="")
