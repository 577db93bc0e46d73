#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""texts_test.py LOCKSTEP: what the program prints are sentences: no clause without its subject, no wrong plural, no size
of 0.0, no bytes in seven digits; reasons name the algorithms that they compare."""
import json
import re
import sys

import program
from program import COLLECTIVE, ENDLESS, Case, mpirun

WRONG = (
    (r"(?<!rank )\b1 (?!us\b|ms\b|is\b|process\b|address\b|address's|less\b)[a-z]+s\b", "a plural after 1"),
    (r"\b(?!1\b)\d+ (rank|replica|bucket|step|epoch|process|host|server|worker|thread|byte|core|round)\b(?! [a-z]+s\b)",
     "a singular"),
    (r"(?:because|: |^)(?:it|its) (?:moves|sends|has|needs|takes|busiest|processors)\b", "what it stands for is not said"),
    (r"\b0\.0 (?:KiB|MiB|GiB)\b", "a size of nothing"),
    (r"\b\d{5,} bytes\b", "a size without a unit"),
    (r"\bother than by\b|\bwere tried\b|\bwhoever\b", "nobody says that"),
)


class Texts(Case):
    def expect_sentences(self, text):
        for line in text.splitlines():
            for pattern, why in WRONG:
                found = re.search(pattern, line)
                self.assertFalse(found, f"{why} ('{found and found[0]}'): {line}")

    def test_of_training(self):
        for flags in (["--replicas", "1"], ["--replicas", "2"], ["--replicas", "2", "--bucket", "0.25"],
                      ["--replicas", "3", "--algorithm", "ring"], ["--replicas", "2", "--update", "separate"],
                      ["--replicas", "2", "--optimizer", "lars"], ["--replicas", "2", "--dtype", "bfloat16"],
                      ["--strategy", "parameter_server", "--replicas", "1", "--warm-up", "0"],
                      ["--strategy", "parameter_server", "--replicas", "2", "--servers", "2", "--sync"]):
            with self.subTest(flags):
                self.expect_sentences(self.good("train", *ENDLESS, "--steps", "2", *flags, "-v").stderr)

    def test_of_several_processes(self):
        self.expect_sentences("\n".join(
            line for line in self.good("train", *ENDLESS, "--steps", "2", "-v", *COLLECTIVE, prefix=mpirun(2)).stderr.splitlines()
            if "mpirun" not in line))

    def reason(self):
        """The form of a reason. It names algorithms that there are."""
        said = program.run("plan", "--topology", "1x1", "--algorithm", "none_of_these").stderr
        known = "|".join(re.search(r"known: ([a-z_, ]+)", said)[1].strip().split(", "))
        self.assertIn("ring", known)
        return re.compile(rf"({known}) (sends|moves|needs|keeps|takes|leaves|waits for|is limited by) .*\b({known}) |"
                          rf"communication rounds,? ({known} )?take"
                          rf"|no other algorithm|all other algorithms make|"
                          "nothing has to be sent|it was asked for")

    def test_of_plans(self):
        reason = self.reason()
        for name in ("1x1", "1x4", "1x8", "3x1", "4x4", "16x8"):
            with self.subTest(name):
                plan = json.loads(self.good("plan", "--topology", name, "--json").stdout)
                for row in plan["table"]:
                    self.assertRegex(row["reason"], reason)
                    self.expect_sentences(row["reason"])
        self.expect_sentences(self.good("plan", "--topology", "4x4", "--model", "mlp").stdout)

    def test_of_other_commands(self):
        self.expect_sentences(self.good("bench", "-b", "4k", "-e", "4k", "-n", "2", "--ranks", "2", "--algorithm",
                                        "auto").stdout)
        self.expect_sentences(self.good("doctor").stdout)


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
