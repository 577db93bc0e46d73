#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lockstep beside PyTorch and TensorFlow, in turn; see compare.sh, which installs them and calls this.

Each case (a model and a dtype, on one core or in two processes of one core each) is run in rounds: lockstep,
PyTorch, TensorFlow, lockstep, ... Before the rounds each peer tries the settings below for a moment, and keeps
the fastest. Figures are medians over rounds of each run's median step; "from .. to" is the smallest and the
largest ratio of one round. Memory is the most that the first process of a contestant had, its program and
libraries with it. The loss falls in every run, or the run fails, and with it the comparison.
"""
import argparse
import functools
import json
import os
import pathlib
import statistics
import sys
import time

import contest
from processes import cpu

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # bench/
import plot

# model -> steps that are timed, and steps before them
STEPS = {"mnist_cnn": (60, 10), "mlp": (800, 10), "mlp_wide": (40, 10), "resnet50": (5, 2)}
QUICK = {"mnist_cnn": (20, 10), "mlp": (200, 10), "mlp_wide": (15, 10), "resnet50": (2, 1)}
DTYPES = {"float32": list(STEPS), "bfloat16": ["mnist_cnn", "resnet50"]}
OURS, RECOMPUTE = "lockstep", "lockstep, recompute"
RECOMPUTED = {"resnet50"}  # whose values would fill memory: measured with less of it beside
CANNOT = 77  # of tools/virtual_cluster.sh: not on this machine
HOSTS = {"resnet50"}  # that computes long enough to hide an all-reduce over a slow wire
# The public settings that are tried, the scripts' own first. Not tried: torch.compile, slower on all models
# and a minute's work each time; --mode compile measures it.
TRIED = {
    "torch_peer.py": {1: [[], ["--update", "foreach"], ["--layout", "contiguous"]],
                      2: [[], ["--buckets", "4"], ["--buckets", "100"]]},
    "tensorflow_peer.py": {1: [[], ["--update", "keras"], ["--mode", "xla"]],
                           2: [[], ["--packs", "4"], ["--packs", "25"]]},
}
TRIED_BFLOAT16 = {
    "torch_peer.py": {1: [[], ["--casts", "whole"]],
                      2: [[], ["--casts", "whole"], ["--buckets", "100"]]},
    "tensorflow_peer.py": {1: [[], ["--update", "keras"]],
                           2: [[], ["--packs", "4"], ["--packs", "25"]]},
}


def titled(model, dtype):
    return model if dtype == "float32" else f"{model} {dtype}"


def say(text=""):
    print(text, flush=True)


def fastest_setting(run, candidates):
    """The flags of the candidate with most images a second; `run` takes flags."""
    best, rate, first = None, 0.0, None
    for flags in candidates:
        try:
            result = run(flags)["examples_per_second"]
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
                raise contest.Failed(f"{name}: {failed}", failed.code) from None
    return results


def summary(results):
    rates = {name: [one["examples_per_second"] for one in runs] for name, runs in results.items()}
    return {name: {"examples_per_second": statistics.median(rates[name]), "rounds": rates[name],
                   "peak_mib": median_memory(results[name]),
                   "setting": results[name][0].get("setting", ""),
                   "version": results[name][0].get("peer", "")} for name in results}


def median_memory(runs):
    """None where a run did not say."""
    told = [run["peak_mib"] for run in runs if "peak_mib" in run]
    return statistics.median(told) if len(told) == len(runs) else None


def memory(one):
    return "" if one["peak_mib"] is None else f"{one['peak_mib']:7,.0f} MiB"


def memory_ratio(contestants, over, under):
    a, b = contestants[over]["peak_mib"], contestants[under]["peak_mib"]
    return a / b if a and b else None


def ratio(contestants, over, under):
    """Of medians, and the smallest and largest of one round."""
    a, b = contestants[over], contestants[under]
    each = [x / y for x, y in zip(a["rounds"], b["rounds"])]
    return {"of": over, "over": under, "ratio": a["examples_per_second"] / b["examples_per_second"],
            "least": min(each), "most": max(each)}


class Comparison:
    def __init__(self, options):
        self.options = options
        self.cores = sorted(os.sched_getaffinity(0))
        self.steps = QUICK if options.quick else STEPS
        self.rounds = options.rounds or (2 if options.quick else 5)
        self.cases, self.shares = [], []

    def work(self, model, dtype="float32"):
        return contest.Work(model, dtype, *self.steps[model])

    def ours(self, function, work, *flags):
        return functools.partial(function, self.options.build, work, self.cores, *flags)

    def peer(self, script, work, processes):
        run = functools.partial(contest.peer, self.options.python, script)
        flags = []
        if not self.options.quick:
            trial = contest.Work(work.model, work.dtype, *QUICK[work.model])
            tried = TRIED if work.dtype == "float32" else TRIED_BFLOAT16
            images = len(contest.networks.INPUTS[work.model][0]) == 3
            candidates = [f for f in tried[script][processes] if images or "--layout" not in f]
            flags = fastest_setting(lambda f: run(trial, self.cores, processes, f), candidates)
        return lambda: run(work, self.cores, processes, flags)

    def against_peers(self, model, dtype, processes):
        own = contest.lockstep_one if processes == 1 else contest.lockstep_processes
        work = self.work(model, dtype)
        contestants = {OURS: self.ours(own, work),
                       "PyTorch": self.peer("torch_peer.py", work, processes),
                       "TensorFlow": self.peer("tensorflow_peer.py", work, processes)}
        if processes == 1 and model in RECOMPUTED:
            contestants[RECOMPUTE] = self.ours(own, work, "--recompute")
        results = summary(in_turn(contestants, self.rounds))
        title = titled(model, dtype) + ", " + ("one core" if processes == 1 else "two processes of one core each")
        faster = max(("PyTorch", "TensorFlow"), key=lambda name: results[name]["examples_per_second"])
        case = {"name": title, "model": model, "dtype": dtype, "batch": work.rows, "processes": processes,
                "contestants": results, "result": ratio(results, OURS, faster),
                "memory": memory_ratio(results, OURS, "PyTorch")}
        if RECOMPUTE in results:
            case["recompute"] = {**ratio(results, RECOMPUTE, OURS), "memory": memory_ratio(results, RECOMPUTE, OURS)}
        self.cases.append(case)
        say(f"\n{title}, batch {work.rows} a process")
        for name, one in results.items():
            say(f"  {name:20} {plot.rate(one):>10} images/s {memory(one)}   "
                f"{', '.join(filter(None, [one['version'], one['setting']]))}".rstrip())
        if case["memory"]:
            say(f"  lockstep's memory is {case['memory']:.2f} times PyTorch's")
        if RECOMPUTE in results and case["recompute"]["memory"]:
            say(f"  with --recompute it takes {case['recompute']['memory']:.2f} of its memory, at "
                f"{case['recompute']['ratio']:.2f} of its speed")
        r = case["result"]
        say(f"  lockstep is {r['ratio']:.2f} times the faster, {faster} (from {r['least']:.2f} to {r['most']:.2f})")

    def against_itself(self, model):
        work = self.work(model)
        results = summary(in_turn({
            "two processes": self.ours(contest.lockstep_processes, work),
            "two Mirrored replicas": self.ours(contest.lockstep_mirrored, work),
            "uncoupled": self.ours(contest.lockstep_apart, work)}, self.rounds))
        say(f"\n{model}, two cores: coupled against uncoupled, {plot.rate(results['uncoupled'])} "
            "images/s of two side by side")
        for coupled in ("two processes", "two Mirrored replicas"):
            r = ratio(results, coupled, "uncoupled")
            self.shares.append({"name": f"{model}, {coupled}", "model": model, "contestants": results, "result": r})
            say(f"  {coupled:22} {r['ratio']:.3f} (from {r['least']:.3f} to {r['most']:.3f})")

    def over_hosts(self, model):
        work = self.work(model)
        try:
            results = summary(in_turn({"two hosts": self.ours(contest.lockstep_hosts, work),
                                       "uncoupled": self.ours(contest.lockstep_apart, work)}, self.rounds))
        except contest.Failed as failed:
            if failed.code != CANNOT:
                raise
            say(f"\n{model}, two virtual hosts: skipped, {failed}")
            return
        r = ratio(results, "two hosts", "uncoupled")
        self.shares.append({"name": f"{model}, two hosts", "model": model, "contestants": results, "result": r})
        say(f"\n{model}, two virtual hosts of a core each, links of 1 Gbit/s: {r['ratio']:.3f} of uncoupled "
            f"(from {r['least']:.3f} to {r['most']:.3f})")

    def run(self):
        say(f"{self.rounds} rounds, SGD with momentum, batch in memory")
        pairs = [(model, dtype) for dtype in self.options.dtypes for model in DTYPES[dtype]
                 if model in self.options.models] if self.options.python else []
        for model, dtype in pairs:
            self.against_peers(model, dtype, 1)
        if len(self.cores) < 2:
            say("\ntwo processes, and coupled against uncoupled: skipped, this needs two cores and there is one")
            return
        for model, dtype in pairs:
            self.against_peers(model, dtype, 2)
        for model in self.options.models:
            self.against_itself(model)
            if model in HOSTS:
                self.over_hosts(model)

    def store(self):
        folder = pathlib.Path(self.options.out or f"{self.options.build}/{'peers' if self.options.python else 'shares'}")
        folder.mkdir(parents=True, exist_ok=True)
        result = {"when": time.strftime("%Y-%m-%d"), "cpu": cpu(), "cores": len(self.cores), "rounds": self.rounds,
                  "quick": self.options.quick, "cases": self.cases, "shares": self.shares}
        (folder / "compare.json").write_text(json.dumps(result, indent=1) + "\n")
        (folder / "compare.svg").write_text(plot.draw(result))
        say(f"\n{folder}/compare.json and compare.svg written")


def names(known, what):
    def parse(text):
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {what} '{name}'; known: {', '.join(known)}")
        return text.split(",")
    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="with torch and tensorflow; without it only the shares are measured")
    parser.add_argument("--build", required=True)
    parser.add_argument("--out")
    parser.add_argument("--models", type=names(STEPS, "model"), default=list(STEPS))
    parser.add_argument("--dtypes", type=names(DTYPES, "dtype"), default=list(DTYPES))
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
