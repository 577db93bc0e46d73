#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bench/plot.py: round ticks, and pictures of results that stand here.

usage: plot_test.py BENCH_FOLDER [UNITTEST_ARGUMENT...]
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

BENCH = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(BENCH))
import plot

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ["lockstep", "Open MPI"]
ALL_REDUCE = {"cpu": "a <processor>", "when": "2026-01-02", "cases": [
    {"ranks": ranks, "cores": 2, "libraries": NAMES, "table": [
        {"bytes": 256 << (4 * step), "us": {"lockstep": 1.5 * 8 ** step, "Open MPI": 2.0 * 8 ** step}} for step in range(6)]}
    for ranks in (2, 4)]}
REGRETS = {layout: [{"bytes": 256 << step, "algorithm": "ring", "best": "direct", "regret": regret}
                    for step, regret in enumerate((1.05, 1.0, worst, 0.97))] for layout, worst in (("1x2", 1.2), ("2x1", 1.7))}


def contestant(images, memory=None):
    return {"examples_per_second": images, "peak_mib": memory}


COMPARE = {"cpu": "a processor", "when": "2026-01-02", "rounds": 5, "cases": [
    {"model": "mlp", "dtype": "float32", "processes": processes, "result": {"over": "TensorFlow", "ratio": 4.0},
     "contestants": {"lockstep": contestant(400.0, 10), "PyTorch": contestant(50.0, 20), "TensorFlow": contestant(100.0)}}
    for processes in (1, 2)],
    "shares": [{"model": "mlp", "result": {"of": "two processes", "ratio": 0.95}}]}


class Plot(unittest.TestCase):
    def drawn(self, result):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(result, file)
            file.flush()
            done = subprocess.run([sys.executable, str(BENCH / "plot.py"), file.name], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        root = xml.fromstring(done.stdout)
        return root, [node.text or "" for node in root.iter(SVG + "text")]

    def test_ticks_are_round(self):
        self.assertEqual(plot.ticks(0, 3.95, 6), [0, 1, 2, 3])
        self.assertEqual(plot.ticks(0, 162, 6), [0, 50, 100, 150])
        self.assertEqual([round(at, 9) for at in plot.ticks(0.8, 1.8, 6)], [0.8, 1.0, 1.2, 1.4, 1.6, 1.8])
        self.assertEqual(plot.ticks(1, 1e6, 11, "powers"), [10 ** power for power in range(7)])
        self.assertEqual(plot.ticks(3, 60, 11, "powers"), [5, 10, 20, 50])
        self.assertEqual(plot.ticks(256, 1 << 28, 8, "sizes"), [256 << (4 * step) for step in range(6)])
        self.assertEqual(plot.ticks(300, 5000, 8, "sizes"), [512, 1024, 2048, 4096])

    def test_quantities_have_units(self):
        self.assertEqual([plot.size_text(size) for size in (256, 4096, 3 << 20)], ["256 B", "4 KiB", "3 MiB"])
        self.assertEqual([plot.time_text(us) for us in (1, 200, 5000, 1000000)], ["1 us", "200 us", "5 ms", "1 s"])

    def test_all_reduce_has_a_line_for_each_library_and_times_with_units(self):
        root, texts = self.drawn(ALL_REDUCE)
        for words in ("1 us", "10 us", "1 ms", "100 ms", "256 B", "4 KiB", "2 processes on 2 cores", "Open MPI"):
            self.assertIn(words, texts)
        self.assertFalse([text for text in texts if "e+" in text])
        lines = [node for node in root.iter(SVG + "polyline") if len(node.get("points").split()) == 6]
        self.assertEqual(len(lines), 4)

    def test_regrets_have_a_line_for_each_layout(self):
        root, texts = self.drawn(REGRETS)
        self.assertEqual([text for text in texts if text in REGRETS], list(REGRETS))
        self.assertEqual(len(list(root.iter(SVG + "circle"))), 8)
        for words in ("1", "1.2", "within 10 %", "within 25 %", "256 B", "2 KiB"):
            self.assertIn(words, texts)

    def test_training_has_a_bar_for_each_contestant_and_no_label_on_a_dashed_line(self):
        root, texts = self.drawn(COMPARE)
        bars = [node for node in root.iter(SVG + "rect") if node.get("rx")]
        self.assertEqual(len(bars), 7)
        for words in ("400", "4.00", "50.00", "10 MiB", "0.95", "images/s"):
            self.assertIn(words, texts)
        dashed = [[tuple(map(float, point.split(","))) for point in node.get("points").split()]
                  for node in root.iter(SVG + "polyline") if node.get("stroke-dasharray")]
        self.assertEqual(len(dashed), 3)
        for (x, top), (_, bottom) in dashed:
            for node in root.iter(SVG + "text"):
                at, y = float(node.get("x")), float(node.get("y"))
                width = 8 * len(node.text or "")  # at least as wide as it is drawn
                left = at - width if node.get("text-anchor") == "end" else at
                if top < y <= bottom:
                    self.assertFalse(left < x < left + width, node.text)

    def test_without_a_result_it_says_how_it_is_called(self):
        done = subprocess.run([sys.executable, str(BENCH / "plot.py")], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (1, "usage: bench/plot.py RESULT_JSON > PICTURE_SVG\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
