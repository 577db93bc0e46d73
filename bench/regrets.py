#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the automatic choice costs against the best algorithm, on several layouts of ranks, as a table and a picture.

usage: bench/regrets.py LOCKSTEP [--layouts 1x2,2x1,1x4,4x1,4x2,2x3+1x1] [--min SIZE] [--max SIZE] [--factor F]
                        [--iterations N] [--rate RATE] [--plot FILE.svg] [--json FILE]

A layout is HOSTSxRANKS, or several with + between (layouts.py); more than one host needs root. Each is one
`lockstep bench --regret`: the best is found on one sample and timed on another.
"""
import json
import pathlib
import sys

import layouts
import plot

def main():
    parser = layouts.parser(__doc__, "--layouts", layouts.some, "1x2,2x1,1x4,4x1,4x2,2x3+1x1")
    parser.add_argument("--min", default="256")
    parser.add_argument("--max", default="256MiB")
    parser.add_argument("--factor", type=float, default=4)
    parser.add_argument("--iterations", type=int, default=0)
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
        pathlib.Path(options.plot).write_text(plot.regrets(found))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    if wrong:
        sys.exit(f"{wrong} elements of results are wrong")


if __name__ == "__main__":
    main()
