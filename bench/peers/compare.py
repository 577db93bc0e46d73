#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lockstep beside PyTorch and TensorFlow, in turn; see compare.sh, which installs them and calls this.

Each case (a model, on one core or in two processes of one core each) is run in rounds: lockstep, PyTorch,
TensorFlow, lockstep, ... Before the rounds each peer tries the settings below for a moment, and keeps the
fastest. Figures are medians over rounds of each run's median step; "from .. to" is the smallest and the
largest ratio of one round. The loss falls in every run, or the run fails, and with it the comparison.
"""
import argparse
import functools
import json
import os
import pathlib
import platform
import statistics
import sys
import time

import contest
import picture

STEPS = {"mnist_cnn": 60, "mlp": 800, "mlp_wide": 40}
QUICK = {"mnist_cnn": 20, "mlp": 200, "mlp_wide": 15}
OURS = "lockstep"
# The public settings that are tried, the scripts' own first. Not tried: torch.compile, slower on all three
# models and a minute's work each time; --mode compile measures it.
TRIED = {
    "torch_peer.py": {1: [[], ["--update", "foreach"], ["--layout", "contiguous"]],
                      2: [[], ["--buckets", "4"], ["--buckets", "100"]]},
    "tensorflow_peer.py": {1: [[], ["--update", "keras"], ["--mode", "xla"]],
                           2: [[], ["--packs", "4"], ["--packs", "25"]]},
}


def say(text=""):
    print(text, flush=True)


def fastest_setting(run, candidates):
    """The flags of the candidate with most images a second; `run` takes flags."""
    best, rate, first = None, 0.0, None
    for flags in candidates:
        try:
            result = run(flags)["images_per_second"]
        except contest.Failed as failed:
            first = first or failed
            continue
        if result > rate:
            best, rate = flags, result
    if best is None:
        raise first
    return best


def in_turn(contestants, rounds):
    """`contestants`: name -> function that runs it once. Returns name -> list of results, by round."""
    results = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            try:
                results[name].append(run())
            except contest.Failed as failed:
                raise contest.Failed(f"{name}: {failed}") from None
    return results


def summary(results):
    rates = {name: [one["images_per_second"] for one in runs] for name, runs in results.items()}
    return {name: {"images_per_second": statistics.median(rates[name]), "rounds": rates[name],
                   "setting": results[name][0].get("setting", ""),
                   "version": results[name][0].get("peer", "")} for name in results}


def ratio(contestants, over, under):
    """Of medians, and the smallest and largest of one round."""
    a, b = contestants[over], contestants[under]
    each = [x / y for x, y in zip(a["rounds"], b["rounds"])]
    return {"of": over, "over": under, "ratio": a["images_per_second"] / b["images_per_second"],
            "least": min(each), "most": max(each)}


class Comparison:
    def __init__(self, options):
        self.options = options
        self.cores = sorted(os.sched_getaffinity(0))
        self.steps = QUICK if options.quick else STEPS
        self.rounds = options.rounds or (2 if options.quick else 5)
        self.cases, self.shares = [], []

    def ours(self, function, model):
        # bench_step counts its ten steps of warming up.
        return functools.partial(function, self.options.build, model, self.steps[model] + 10, self.cores)

    def peer(self, script, model, processes):
        run = functools.partial(contest.peer, self.options.python, script, model)
        flags = []
        if not self.options.quick:
            candidates = [f for f in TRIED[script][processes] if "--layout" not in f or model == "mnist_cnn"]
            flags = fastest_setting(lambda f: run(QUICK[model], self.cores, processes, f), candidates)
        return lambda: run(self.steps[model], self.cores, processes, flags)

    def against_peers(self, model, processes):
        own = contest.lockstep_one if processes == 1 else contest.lockstep_processes
        results = summary(in_turn({
            OURS: self.ours(own, model),
            "PyTorch": self.peer("torch_peer.py", model, processes),
            "TensorFlow": self.peer("tensorflow_peer.py", model, processes)}, self.rounds))
        title = f"{model}, " + ("one core" if processes == 1 else "two processes of one core each")
        faster = max(("PyTorch", "TensorFlow"), key=lambda name: results[name]["images_per_second"])
        case = {"name": title, "model": model, "processes": processes, "contestants": results,
                "result": ratio(results, OURS, faster)}
        self.cases.append(case)
        say(f"\n{title}")
        for name, one in results.items():
            say(f"  {name:12} {one['images_per_second']:10,.0f} images/s   "
                f"{', '.join(filter(None, [one['version'], one['setting']]))}")
        r = case["result"]
        say(f"  lockstep is {r['ratio']:.2f} times the faster, {faster} (from {r['least']:.2f} to {r['most']:.2f})")

    def against_itself(self, model):
        results = summary(in_turn({
            "two processes": self.ours(contest.lockstep_processes, model),
            "two Mirrored replicas": self.ours(contest.lockstep_mirrored, model),
            "uncoupled": self.ours(contest.lockstep_apart, model)}, self.rounds))
        say(f"\n{model}, two cores: coupled against uncoupled, {results['uncoupled']['images_per_second']:,.0f} "
            "images/s of two side by side")
        for coupled in ("two processes", "two Mirrored replicas"):
            r = ratio(results, coupled, "uncoupled")
            self.shares.append({"name": f"{model}, {coupled}", "model": model, "contestants": results, "result": r})
            say(f"  {coupled:22} {r['ratio']:.3f} (from {r['least']:.3f} to {r['most']:.3f})")

    def run(self):
        say(f"{self.rounds} rounds, batch {contest.BATCH} a replica, float32, SGD with momentum, batch in memory")
        for model in self.options.models if self.options.python else []:
            self.against_peers(model, 1)
        if len(self.cores) < 2:
            say("\ntwo processes, and coupled against uncoupled: skipped, this needs two cores and there is one")
            return
        for model in self.options.models if self.options.python else []:
            self.against_peers(model, 2)
        for model in self.options.models:
            self.against_itself(model)

    def store(self):
        folder = pathlib.Path(self.options.out or f"{self.options.build}/{'peers' if self.options.python else 'shares'}")
        folder.mkdir(parents=True, exist_ok=True)
        result = {"when": time.strftime("%Y-%m-%d"), "cpu": cpu(), "cores": len(self.cores), "rounds": self.rounds,
                  "quick": self.options.quick, "cases": self.cases, "shares": self.shares}
        (folder / "compare.json").write_text(json.dumps(result, indent=1) + "\n")
        (folder / "compare.svg").write_text(picture.draw(result))
        say(f"\n{folder}/compare.json and compare.svg written")


def cpu():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def models(text):
    names = text.split(",")
    for name in names:
        if name not in STEPS:
            raise argparse.ArgumentTypeError(f"no model '{name}'; known: {', '.join(STEPS)}")
    return names


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="with torch and tensorflow; without it only the shares are measured")
    parser.add_argument("--build", required=True)
    parser.add_argument("--out")
    parser.add_argument("--models", type=models, default=list(STEPS))
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    comparison = Comparison(parser.parse_args())
    try:
        comparison.run()
    except contest.Failed as failed:
        sys.exit(f"compare: {failed}")
    comparison.store()


if __name__ == "__main__":
    main()
