#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How well predicted times hold: `lockstep bench --algorithm all`, predicted over measured, for every algorithm and size.

usage: bench/predictions.py LOCKSTEP [--layout 1x2] [--max SIZE] [--iterations N] [--rate RATE]

A layout is HOSTSxRANKS, or several with + between (layouts.py); more than one host needs root. A ratio that is off by
more than a quarter is starred. The last line says how many are not.
"""
import layouts

OFF = 0.25


def main():
    parser = layouts.parser(__doc__, "--layout", layouts.one, "1x2")
    parser.add_argument("--max", default="64MiB")
    parser.add_argument("--iterations", type=int, default=0)
    options = parser.parse_args()
    rows = layouts.rows(options.lockstep, options.layout, options.rate, "--algorithm", "all", "--check", "last",
                        "--min", "256", "--max", options.max, "--iterations", str(options.iterations))
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    if rows[0]["barrier_ns"]:  # both on one host
        print(f"two ranks meet in {rows[0]['barrier_ns']:.0f} ns")
    print(f"{options.layout}: bytes; microseconds measured, predicted, ratio")
    print(" " * 10 + "".join(f"{name:>28}" for name in algorithms))
    good = []
    for size in dict.fromkeys(row["bytes"] for row in rows):
        line, here = f"{size:>10}", {row["algorithm"]: row for row in rows if row["bytes"] == size}
        for name in algorithms:
            us, predicted = here[name]["in_place_us"], here[name]["predicted_us"]
            good.append(abs(predicted / us - 1) <= OFF)
            line += f"{us:>12.1f}{predicted:>10.1f}{predicted / us:>5.2f}{' ' if good[-1] else '*'}"
        print(line)
    print(f"within a quarter: {sum(good)} of {len(good)}, {100 * sum(good) / len(good):.0f} %")


if __name__ == "__main__":
    main()
