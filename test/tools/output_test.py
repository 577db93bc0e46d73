#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""output_test.py LOCKSTEP: each file that a command writes is named in one line; --quiet leaves results, warnings and
errors; an epoch's line has the means of its steps; steps have one numbering."""
import json
import os
import re
import sys

import program
from program import ENDLESS, Case, said

RUN = [*ENDLESS, "--epochs", "2", "--replicas", "2"]   # of 12 steps


class Output(Case):
    def outputs(self):
        return ["--log", self.top / "log", "--summary", self.top / "tb", "--profile", self.top / "trace",
                "--checkpoints", self.top / "c"]

    def events(self):
        return [json.loads(line) for line in (self.top / "log").read_text().splitlines()]

    def test_each_file_of_a_run_is_named_in_one_line(self):
        lines = self.good("train", *RUN, *self.outputs()).stderr.splitlines()
        wrote = [line.removeprefix("wrote ") for line in lines if line.startswith("wrote ")]
        summary, = (self.top / "tb").iterdir()
        self.assertEqual(sorted(wrote), sorted(map(str, [self.top / "log", summary, self.top / "trace",
                                                         *(self.top / "c").glob("step-*[0-9]")])))

    def test_files_of_other_commands_too(self):
        for arguments in (["plan", "--topology", "3x1", "--svg", self.top / "a", "--topology-out", self.top / "b"],
                          ["bench", "-b", "4k", "-e", "4k", "-n", "2", "--ranks", "2", "--assumed", "--plot", self.top / "a"]):
            files = [word for word in arguments if word in (self.top / "a", self.top / "b")]
            lines = [line for line in self.good(*arguments).stderr.splitlines() if line.startswith("wrote ")]
            self.assertEqual(sorted(lines), sorted(f"wrote {file}" for file in files))
            self.assertNotIn("wrote", self.good(*arguments, "--quiet").stderr)

    def test_a_quiet_run_says_nothing_that_is_no_warning(self):
        for flag in ("-q", "--quiet"):
            done = self.good("train", *RUN, *self.outputs(), flag, "--json")
            self.assertEqual([line for line in said(done) if " warning: " not in line], [])
            self.assertEqual(json.loads(done.stdout)["steps"], 12)
        done = self.good("predict", "--checkpoints", self.top / "c", "-q")
        self.assertEqual((done.stderr, done.stdout.splitlines()[0][:15]), ("", "index,predicted"))
        program.refused(self, ["train", *RUN, "-q", "--batch", "0"], 64, ["--batch"])
        program.refused(self, ["train", *RUN, "-q", "-v"], 64, ["--quiet", "--verbose"])
        for verbose in (True, False):
            (self.top / "flags.json").write_text(json.dumps({"verbose": verbose}))
            result, = self.good("train", *RUN, "-q", "--config", self.top / "flags.json").stdout.splitlines()
            self.assertRegex(result, r"^test after 12 steps: loss .*, accuracy ")
        untested, = self.good("train", *program.MLP, "--steps", "12", "-q", "--data", "random").stdout.splitlines()
        self.assertRegex(untested, r"^loss of step 12: \d")
        self.assertIn("dense1.weight", self.good("train", *RUN, "-q", "--placement").stderr)

    def test_a_file_that_lost_something_was_not_written(self):
        os.mkfifo(self.top / "log")
        done = self.good("train", *RUN, "--log", self.top / "log")
        self.assertIn("events are lost", done.stderr)
        self.assertNotIn("wrote", done.stderr)

    def test_more_is_said_where_it_is_asked_for(self):
        usual, more = (self.good("train", *RUN, "--checkpoints", self.top / name, *flags).stderr
                       for name, flags in (("c", []), ("d", ["-v"])))
        self.assertLessEqual(len(usual.partition("epoch 1")[0].splitlines()), 4, usual)
        self.assertIn("-v for details", usual)
        for text in ("\nupdate: ", "\nmemory: "):
            self.assertNotIn(text, usual)
            self.assertIn(text, more)

    def test_an_epoch_has_the_means_of_its_steps(self):
        """Of the examples: the last batch is smaller."""
        done = self.good("train", *RUN, "--batch", "70", "--log", self.top / "log")
        steps = [event for event in self.events() if event["event"] == "step"]
        sizes = [70, 70, 70, 70, 20]
        for epoch in (1, 2):
            mine = steps[5 * (epoch - 1):5 * epoch]
            loss, accuracy = (sum(n * step[key] for n, step in zip(sizes, mine)) / 300 for key in ("loss", "accuracy"))
            line = re.search(rf"^epoch {epoch}: mean loss ([\d.]+), mean accuracy ([\d.]+), \d+ examples/s$", done.stderr,
                             re.MULTILINE)
            self.assertAlmostEqual(float(line[1]), loss, delta=1e-4)
            self.assertAlmostEqual(float(line[2]), accuracy, delta=1e-4)

    def test_steps_have_one_numbering(self):
        self.good("train", *RUN, *self.outputs(), "--every", "3")
        events = self.events()
        steps, evaluations, checkpoints = ([event["step"] for event in events if event["event"] == kind]
                                           for kind in ("step", "evaluation", "checkpoint"))
        self.assertEqual((steps, evaluations, checkpoints), (list(range(1, 13)), [6, 12], [3, 6, 9, 12]))
        self.assertEqual(program.whole(self.top / "c")[-1], 12)
        trace = json.loads((self.top / "trace").read_text())["traceEvents"]
        self.assertEqual(max(event["args"].get("step", 0) for event in trace), 12)
        self.good("train", *ENDLESS, "--steps", "15", "--replicas", "2", *self.outputs())
        self.assertEqual([event["step"] for event in self.events() if event["event"] == "step"], list(range(1, 16)))


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
