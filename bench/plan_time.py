#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a job needs to know its best all-reduces: `lockstep plan --fresh` on layouts of ranks, what measuring costs
takes and what pricing all sizes takes.

usage: bench/plan_time.py LOCKSTEP [--layouts 1x2,1x4,1x8,2x1,4x2] [--rate RATE] [--rounds N]

Layouts take turns. Hosts are virtual ones (tools/virtual_cluster.sh, which needs root), one host is this machine.
"""
import json
import statistics

import layouts


def main():
    parser = layouts.parser(__doc__, "--layouts", layouts.some, "1x2,1x4,1x8,2x1,4x2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found = {layout: [] for layout in options.layouts}
    for _ in range(options.rounds):
        for layout, times in found.items():
            plan, = layouts.rows(options.lockstep, layout, options.rate, "--fresh", command="plan")
            times.append((plan["calibration_seconds"], plan["planning_seconds"]))
    medians = {}
    for layout, times in found.items():
        both = [sum(time) for time in times]
        measuring, planning = (statistics.median(part) for part in zip(*times))
        medians[layout] = statistics.median(both)
        print(f"{layout}: measured in {measuring:.3f} s, planned in {planning:.3f} s, together {medians[layout]:.3f} s "
              f"(from {min(both):.3f} to {max(both):.3f})")
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
