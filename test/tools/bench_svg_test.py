#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The plots of `lockstep bench --plot`: lines, colors, ticks and names.

usage: bench_svg_test.py LOCKSTEP [NAMES OF TESTS]
"""
import json
import re
import sys
import xml.etree.ElementTree as xml

import program

SMALL = ["bench", "--min", "64", "--max", "64k", "--factor", "16", "--iterations", "5", "--warmup", "1"]
BYTES = [64, 1024, 16384]


class Plot(program.Case):
    def test_the_plot_has_one_line_for_each_algorithm_and_round_ticks(self):
        file = self.top / "bench.svg"
        lines = self.good(*SMALL, "--algorithm", "all", "--plot", file, "--json").stdout.splitlines()
        found = [json.loads(line) for line in lines]
        root = xml.parse(file)
        texts = [element.text for element in root.iter() if element.tag.endswith("text")]
        names = list(dict.fromkeys(row["algorithm"] for row in found)) + ["roofline"]
        self.assertEqual([text for text in texts if text in names], names)
        lines = [element for element in root.iter() if element.tag.endswith("polyline")]
        self.assertEqual(len(lines), len(names))
        self.assertEqual([bool(line.get("stroke-dasharray")) for line in lines], [False] * (len(names) - 1) + [True])
        self.assertFalse([text for text in texts if "out of place" in text])
        sizes = [text for text in texts if re.fullmatch(r"\d+ (bytes|[KMG]iB)", text)]
        self.assertEqual(sizes[0], "64 bytes")
        for size in sizes:
            self.assertEqual(int(size.split()[0]).bit_count(), 1, sizes)
        for number in [text for text in texts if re.fullmatch(r"[\d.e-]+", text)]:
            self.assertIn(f"{float(number):.3e}".split("e")[0], ("1.000", "2.000", "5.000"), texts)
        self.assertIn("bus bandwidth in place, GB/s", texts)

    def test_choices_by_size_are_one_line_whose_dots_have_the_colors_of_their_algorithms(self):
        def look(algorithms):
            file = self.top / "bench.svg"
            self.good(*SMALL, "--algorithm", algorithms, "--plot", file)
            elements = list(xml.parse(file).iter())
            texts = [element.text for element in elements if element.tag.endswith("text")]
            lines = [element for element in elements if element.tag.endswith("polyline")]
            return texts, lines, [element.get("fill") for element in elements if element.tag.endswith("circle")]

        texts, lines, dots = look("direct:..1k,ring:1k..")
        for name in ("lockstep", "direct", "ring", "roofline"):
            self.assertEqual(texts.count(name), 1, texts)
        self.assertEqual(len(lines), 2)
        self.assertEqual(len(lines[0].get("points").split()), len(BYTES))
        _, (direct, ring, _), _ = look("direct,ring")
        for line in (direct, ring):
            self.assertIn(line.get("stroke"), dots)

    def test_the_roofline_of_a_plot_is_of_every_size_once(self):
        """Also where the algorithm is another from some size on, and where several are timed at each."""
        file = self.top / "bench.svg"
        for algorithms in ("direct:..1k,ring:1k..", "direct,ring"):
            self.good(*SMALL, "--algorithm", algorithms, "--plot", file)
            lines = {element.get("stroke"): element.get("points").split()
                     for element in xml.parse(file).iter() if element.tag.endswith("polyline")}
            self.assertEqual(len(lines["#888888"]), len(BYTES), algorithms)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
