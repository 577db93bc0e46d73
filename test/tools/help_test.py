#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""help_test.py LOCKSTEP: --help shows flags in groups, with examples that the program accepts; what is misspelled is
answered with the name that was meant; flags have the names that the field knows."""
import json
import re
import shlex
import shutil
import subprocess
import sys
import unittest

import program
from program import MLP, Case, run

COMMANDS = ("train", "predict", "plan", "bench", "serve", "render", "doctor", "completion", "man")
GROUPS = {"train": ["Model", "Data", "Training", "Optimizer", "Strategy", "Communication", "Devices", "Checkpoints",
                    "Output", "General"],
          "predict": ["Data", "Execution", "Output", "General"],
          "plan": ["Cluster", "Choice", "Output", "General"],
          "bench": ["Sizes", "Operation", "Measurement", "Scaling", "Ranks and devices", "Communication", "Output",
                    "General"],
          "serve": ["Server", "Security", "Status", "Output", "General"],
          "doctor": ["General"],
          "completion": ["General"],
          "man": ["General"]}


def flags_of(text):
    return re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]*", text)


class Help(Case):
    def help(self, command):
        return self.good(command, "--help").stdout

    def test_flags_stand_in_groups(self):
        for command, groups in GROUPS.items():
            with self.subTest(command):
                text = self.help(command)
                found = re.findall(r"^([A-Z][a-z ]+?)(?: \(.*\))?:$", text, re.MULTILINE)
                self.assertEqual([g for g in found if g in groups], groups)
                self.assertNotIn("\nOptions:", text)
                for line in text.splitlines():
                    self.assertLessEqual(len(line), 100)
                    self.assertEqual(line, line.rstrip())
                self.assertNotIn("\n\n\n", text)

    def test_a_letter_shows_each_flag_in_a_line(self):
        for command in COMMANDS:
            with self.subTest(command):
                text, full = self.good(command, "-h").stdout, self.help(command)
                flags = [line for line in text.splitlines() if line.startswith("  -")]
                self.assertEqual(len(flags), sum(line.startswith("  -") for line in full.splitlines()))
                for line in text.split("Examples:")[0].splitlines()[2:]:
                    self.assertRegex(line, r"^(  \S.*\S {2,}\S.*|  \S.* (NUMBER|TEXT)( REQUIRED)? \S.*|  -\S+ \S+| {30}\S.*|[A-Z][a-z ]+( \(.*\))?:|)$")
                    self.assertLessEqual(len(line), 100, line)

    def test_each_example_has_only_flags_that_there_are(self):
        for command in COMMANDS:
            text, examples = self.help(command).split("Examples:\n")
            self.assertTrue(examples.strip())
            known = set(flags_of(text)) | set(re.findall(r"(?<= )-[a-z](?=, )", text))
            for line in examples.strip().splitlines():
                words = shlex.split(line.split("|")[0])
                at = words.index("lockstep")
                self.assertEqual(words[at + 1], command)
                for word in words[at + 2:words.index("--") if "--" in words else None]:
                    if re.match("--?[a-z]", word):
                        self.assertIn(word, known, line)

    def test_help_and_version_are_commands_too(self):
        self.assertEqual(self.good("help").stdout, self.good("--help").stdout)
        self.assertEqual(self.good("help", "bench").stdout, self.good("bench", "--help").stdout)
        self.assertEqual(self.good("version").stdout, self.good("--version").stdout)

    def completed(self, *words):
        """What bash offers for the last of the words."""
        script = self.good("completion", "bash").stdout + 'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _lockstep; echo "${COMPREPLY[*]}"'
        done = subprocess.run(["bash", "-c", script, "bash", "lockstep", *words], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_bash_completes_commands_flags_and_values(self):
        self.assertLessEqual(set(COMMANDS), set(self.completed("")))
        for command in COMMANDS:
            shown = {flag for line in self.help(command).splitlines() if re.match(r"  -", line) for flag in flags_of(line)}
            self.assertLessEqual(shown, set(self.completed(command, "--")), command)
        self.assertEqual(self.completed("train", "--model", "mn"), ["mnist_cnn"])
        self.assertEqual(self.completed("train", "--model", "=", "mn"), ["mnist_cnn"])
        self.assertEqual(self.completed("bench", "-o", "pro"), ["product"])
        self.assertEqual(self.completed("train", "--data", ""), [])   # bash offers files then
        self.assertEqual(self.completed("completion", "z"), ["zsh"])

    def test_zsh_and_fish_complete_the_same_flags(self):
        """They are not installed everywhere: their scripts are read as text, too."""
        for shell, form in (("zsh", "--{}"), ("fish", " -l {}")):
            script = self.good("completion", shell).stdout
            for command in COMMANDS:
                for flag in flags_of(self.help(command).split("Examples:")[0]):
                    self.assertIn(form.format(flag[2:]), script, shell)
            if shutil.which(shell):
                done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    @unittest.skipUnless(shutil.which("fish"), "fish is missing")
    def test_fish_completes_what_the_command_has(self):
        script = self.good("completion", "fish").stdout
        for line, offered in (("lockstep tr", ["train"]), ("lockstep train --model mn", ["mnist_cnn"]),
                              ("lockstep predict --split train --mo", []), ("lockstep completion z", ["zsh"])):
            done = subprocess.run(["fish", "-c", f"{script}\ncomplete -C '{line}'"], capture_output=True, text=True)
            self.assertEqual([each.split("\t")[0] for each in done.stdout.splitlines()], offered, done.stderr)

    def test_a_description_begins_with_what_the_flag_is(self):
        for command in COMMANDS:
            for line in self.good(command, "-h").stdout.splitlines():
                self.assertNotRegex(line, r" {2,}(with|under|without|if) ")

    def test_the_manual_page_has_every_flag_and_exit_code(self):
        page = self.good("man").stdout
        for command in COMMANDS:
            for flag in set(flags_of(self.help(command).split("Examples:")[0])):
                self.assertIn(flag.replace("-", r"\-"), page)
        for code in ("64", "65", "70", "74", "75"):
            self.assertIn(f"\n.TP\n\\fB{code}\\fR\n", page)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-z"], input=page, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_examples_run(self):
        self.good("bench", "--ranks", "2", "-b", "4k", "-e", "8k", "-f", "2", "-n", "2", "-w", "1", "-d", "float32",
                  "-o", "sum", "--algorithm", "all", "--plot", self.top / "all.svg", "--assumed")
        self.good("plan", "--topology", "3x1", "--model", "mlp", "--svg", self.top / "plan.svg", "--topology-out",
                  self.top / "job.json")

    def test_what_is_misspelled_is_answered_with_what_was_meant(self):
        for arguments, meant in (
                ("train --modle mlp", "--model"), ("train --lrr 1", "--lr"), ("train -lr 1", "--lr"),
                ("train --weight_decay=1", "--weight-decay"), ("train --num-epochs 3", "--epochs"),
                ("train --epoch=3", "--epochs"), ("train --Batch 3", "--batch"), ("train epochs=3", "--epochs"),
                ("train --model mnist_cn", "mnist_cnn"), ("train --optimizer adma", "adam"),
                ("train --algorithm rign", "ring"), ("train --strategy miror", "mirrored"), ("trian", "train"),
                ("predict --checkpoint x", "--checkpoints"), ("plan --topolgy 3x1", "--topology"),
                ("plan --topology 3x1 --algorithm derect", "direct"), ("bench --min-bytes 4k", "--minbytes"),
                ("bench --collective allreduce", "all_reduce"), ("serve --adress x", "--address"),
                ("doctor --jsn", "--json"), ("train --ckpt x", "--checkpoints"), ("train --resume", "--checkpoints"),
                ("train --gpus 2", "--device cuda --replicas"), ("train --workers 2", "--replicas"), ("train --bs 2", "--batch"),
                ("bench -g 1", "--devices"), ("bench -c 1", "--check"), ("bench -d half", "float16"), ("bench -o avg", "mean"),
                ("train --dtype bf16", "bfloat16")):
            with self.subTest(arguments):
                program.refused(self, arguments.split(), 64, [f"; did you mean {meant}? "])

    def test_a_misspelled_variable_is_named_and_another_is_not(self):
        variables = ["env", "LOCKSTEP_RNAK=1", "LOCKSTEP_SECRT_FILE=x", "LOCKSTEP_OTHER=1", "LOCKSTEP_SOURCE=x"]
        said = self.good("train", *MLP, "--examples", "100", "--steps", "1", "-q", prefix=variables).stderr
        self.assertEqual(re.findall(r"the variable (\S+) has no effect; did you mean (\S+)\?", said),
                         [("LOCKSTEP_RNAK", "LOCKSTEP_RANK"), ("LOCKSTEP_SECRT_FILE", "LOCKSTEP_SECRET_FILE")])

    def test_what_is_like_nothing_has_no_hint(self):
        for arguments in ("train --bogus 3", "train -x", "frobnicate", "train --optimizer magic", "bench -y 1"):
            with self.subTest(arguments):
                done = run(*arguments.split())
                self.assertEqual(done.returncode, 64)
                self.assertNotIn("did you mean", done.stderr)

    def test_a_flag_of_another_command_is_said_to_be_one(self):
        program.refused(self, ["train", "--split", "test"], 64, ["'--split'; it is a flag of lockstep predict;"])
        program.refused(self, ["--json"], 64, ["a command must come first"])

    def test_names_of_the_field(self):
        flags = [*MLP, "--examples", "100", "--steps", "2"]
        losses = {json.loads(self.good("train", *flags, "--json", *rate).stdout)["loss"]
                  for rate in (["--rate", "0.5"], ["--lr", "0.5"], ["--learning-rate=0.5"])}
        self.assertEqual(len(losses), 1)
        self.assertEqual(self.result(*flags, "--batch-size", "25")["batch"], 25)
        program.refused(self, ["train", "--lr", "-1"], 64, ["--lr: must be a number above 0"])
        sizes = []
        for names in (("--min", "--max", "--factor", "--iterations"), ("-b", "-e", "-f", "-n"),
                      ("--minbytes", "--maxbytes", "--stepfactor", "--iters")):
            given = [word for pair in zip(names, ("4k", "16k", "4", "2")) for word in pair]
            lines = self.good("bench", *given, "--ranks", "2", "--json", "--assumed").stdout.splitlines()
            sizes.append([json.loads(line)["bytes"] for line in lines])
        self.assertEqual(sizes, [[4096, 16384]] * 3)

    def test_a_file_of_flags_may_use_them_too(self):
        path = self.top / "flags.json"
        flags = [*MLP, "--examples", "100", "--steps", "2", "--json", "--config", path]
        path.write_text('{"lr": 0.5}')
        loss = json.loads(self.good("train", *flags).stdout)["loss"]
        path.write_text('{"rate": 0.1}')
        self.assertEqual(json.loads(self.good("train", *flags, "--lr", "0.5").stdout)["loss"], loss)
        path.write_text('{"rate": 0.1, "lr": 0.5}')
        program.refused(self, ["train", *flags], 64, ['"rate" is there twice', "rate, lr,"])
        path.write_text('{"modle": "mlp"}')
        program.refused(self, ["train", *flags], 64, ['"modle" is not a flag of train; did you mean model? '])


if __name__ == "__main__":
    sys.exit(not program.main(__doc__))
