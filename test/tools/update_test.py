#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An optimizer's update inside the all-reduce and one separate from it, in two processes of one host: the
same parameters and the same optimizer's state, bit by bit, and half the state in each process.

usage: update_test.py LOCKSTEP
"""
import re
import sys

import program
import shards
from program import COLLECTIVE, SMALL, Case, mpirun

RULES = {
    "sgd": ["--optimizer", "sgd", "--momentum", "0.9"],
    "sgd, clipped": ["--optimizer", "sgd", "--momentum", "0.9", "--clip", "0.1"],
    "adam": ["--optimizer", "adam"],
}


def state(folder):
    """What the newest checkpoint holds, whole: slots lie in it in pieces, "SLOT/NAME@BEGIN"."""
    pieces = {}
    for path in sorted(shards.newest(folder).glob("*.safetensors")):
        for name, values in shards.read_file(path).items():
            whole, _, begin = name.partition("@")
            pieces.setdefault(whole, []).append((int(begin or 0), values.tobytes()))
    return {name: b"".join(values for _, values in sorted(found)) for name, found in pieces.items()}


class Update(Case):
    def test_fused_and_separate_end_with_the_same_bits_and_fused_keeps_half_the_state(self):
        for name, rule in RULES.items():
            with self.subTest(name):
                ended, kept = {}, {}
                for update in ("fused", "separate"):
                    folder = self.top / name / update
                    done = self.good("train", *SMALL, *COLLECTIVE, *rule, "--update", update, "-v", "--checkpoints", folder,
                                     prefix=mpirun(2))
                    kept[update] = float(re.search(r"([0-9.]+) MiB for the optimizer's state", done.stderr)[1])
                    ended[update] = state(folder)
                self.assertGreater(len(ended["fused"]), 6)
                self.assertTrue(any("/" in key for key in ended["fused"]), list(ended["fused"]))
                self.assertEqual(ended["fused"].keys(), ended["separate"].keys())
                for key, values in ended["fused"].items():
                    self.assertEqual(values, ended["separate"][key], f"{name}: {key} differs")
                self.assertAlmostEqual(kept["separate"], 2 * kept["fused"], delta=0.16)  # printed to a tenth of a MiB
                self.assertGreater(kept["fused"], 1)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
