#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the automatic choice costs against the best algorithm, on several layouts of ranks, as a table and a picture.

usage: bench/regrets.py LOCKSTEP [--layouts 1x2,2x1,1x4,4x1,4x2,2x3+1x1] [--min SIZE] [--max SIZE] [--factor F]
                        [--iterations N] [--rate RATE] [--plot FILE.svg] [--json FILE]

A layout is HOSTSxRANKS, or several with + between (layouts.py); more than one host needs root. Each is one
`lockstep bench --regret`: the best is found on one sample and timed on another.
"""
import argparse
import json
import math
import pathlib
import sys

import layouts

COLOURS = ["#1764ab", "#c1272d", "#2a8a3e", "#8a4fbf", "#c77700", "#00848c", "#b03a86"]


def size_name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


def picture(found):
    """Choice's time over the best's, by size; grey: within 10 % and within 25 %."""
    width, height, left, right, top, bottom = 900, 460, 70, 150, 50, 60
    sizes = sorted({row["bytes"] for rows in found.values() for row in rows})
    most = max(2.0, 1.05 * max(row["regret"] for rows in found.values() for row in rows))
    least = min(0.9, min(row["regret"] for rows in found.values() for row in rows))

    def x(size):
        return left + (width - left - right) * math.log2(size / sizes[0]) / max(1e-9, math.log2(sizes[-1] / sizes[0]))

    def y(ratio):
        return height - bottom - (height - top - bottom) * (ratio - least) / (most - least)

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           'font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{left}" y="24" font-size="15">time of the automatic choice over that of the best algorithm</text>']
    for limit, shade in ((1.25, "#eeeeee"), (1.1, "#dddddd")):
        svg.append(f'<rect x="{left}" y="{y(limit):.1f}" width="{width - left - right}" '
                   f'height="{y(1) - y(limit):.1f}" fill="{shade}"/>')
    for ratio in [1, 1.1, 1.25] + [1.5 + step / 2 for step in range(int((most - 1.5) * 2) + 1)]:
        svg.append(f'<text x="{left - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio:g}</text>')
    for size in sizes[::max(1, len(sizes) // 8)]:
        svg.append(f'<text x="{x(size):.1f}" y="{height - bottom + 20}" text-anchor="middle">{size_name(size)}</text>')
    for number, (layout, rows) in enumerate(found.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f'{x(row["bytes"]):.1f},{y(row["regret"]):.1f}' for row in rows)
        svg.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for row in rows:
            svg.append(f'<circle cx="{x(row["bytes"]):.1f}" cy="{y(row["regret"]):.1f}" r="3" fill="{colour}">'
                       f'<title>{layout}, {size_name(row["bytes"])}: {row["algorithm"]}, best {row["best"]}</title>'
                       '</circle>')
        svg.append(f'<path d="M{width - right + 12} {top + 20 * number}h24" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{width - right + 42}" y="{top + 20 * number + 4}">{layout}</text>')
    svg.append(f'<text x="{(left + width - right) / 2}" y="{height - 15}" text-anchor="middle">size of one rank\'s '
               'input; hosts x ranks</text></svg>')
    return "\n".join(svg) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lockstep")
    parser.add_argument("--layouts", type=layouts.some, default="1x2,2x1,1x4,4x1,4x2,2x3+1x1")
    parser.add_argument("--min", default="256")
    parser.add_argument("--max", default="256MiB")
    parser.add_argument("--factor", type=float, default=4)
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--plot")
    parser.add_argument("--json")
    options = parser.parse_args()
    found, wrong = {}, 0
    for layout in options.layouts:
        rows = found[layout] = layouts.rows(options.lockstep, layout, options.rate, "--regret", "--check", "last",
                                            "--min", options.min, "--max", options.max, "--factor",
                                            str(options.factor), "--iterations", str(options.iterations))
        print(f"{layout}: bytes, choice, us (predicted), best, us, regret")
        for row in rows:
            wrong += row["wrong"]
            print(f'{row["bytes"]:>12} {row["algorithm"]:<20} {row["choice_us"]:>11.1f} ({row["predicted_us"]:.1f})'
                  f'  {row["best"]:<20} {row["best_us"]:>11.1f} {row["regret"]:>6.2f}', flush=True)
        good = [sum(row["regret"] <= limit for row in rows) for limit in (1.1, 1.25)]
        print(f"{layout}: within 10 % at {good[0]} of {len(rows)}, within 25 % at {good[1]}, "
              f"{max(row['regret'] for row in rows):.2f} at worst", flush=True)
    if options.plot:
        pathlib.Path(options.plot).write_text(picture(found))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    if wrong:
        sys.exit(f"{wrong} elements of results are wrong")


if __name__ == "__main__":
    main()
