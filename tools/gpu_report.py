#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What gpu_check.sh found, as one JSON with a table of what was demanded.

usage: gpu_report.py WORK JSON VERSION SECONDS MOST
       gpu_report.py --compare FOLDER FOLDER

The first reads what gpu_check.sh left in the folder WORK (`runs`: a line for each thing that was run; `NAME.out` and
`NAME.err` of each; `doctor`), writes the JSON, prints what failed and the table, and leaves in WORK/failed the names of
what failed. Runs NAME.0of2, NAME.1of2 are the shards of NAME. SECONDS is what all of it took, MOST what it may take. The
second prints whether two folders of checkpoints hold the same weights and optimizer state, bit for
bit, as JSON.

A demand's `met` is true or false where it was measured, and null where it was not, with the reason. It is not true
either where the measure that it is held against is incomplete, as PyTorch's fastest without all of its modes.
A missed demand of speed depends on the GPU; a missed one of tests, accuracy, equal bits or
compute-sanitizer is a defect.

The JSON has these fields:
  devices, doctor   the name of each device; all that `lockstep doctor --json` says
  version, kernel, glibc, python, time
                    of lockstep and of the machine
  seconds           what all of it took
  demands           by name: demand (a text), wanted (at least, at most, holds), target, measured,
                    met, reason
  tests             by name: result (passed, failed, timed out, skipped: ...), exit_code, seconds,
                    command, cases (the result of each; `not ended` if the program died in it),
                    failures (their output), and the kernels in which racecheck reports a race:
                    hazards_of_libraries, which are no failures, and hazards
  benches           by name: the same, and figures: each line of JSON that the program printed
"""
import datetime
import hashlib
import json
import pathlib
import platform
import re
import sys

RESULTS = {"0": "passed", "77": "skipped", "124": "timed out", "137": "timed out",
           "absent": "skipped: not installed", "unbuilt": "failed: not built", "late": "skipped: no time left"}
TORCH_MODES = ("eager", "graphed", "compiled_graphed")  # a graph replays what `compiled` alone has to launch
TORCH_RUNS = ("torch", "torch_compiled")
ACCURACY = 0.02  # of 2000 digits: what roundings of 16 bits may change
SANITIZERS = ("memcheck", "synccheck", "racecheck")
# Images a second of resnet50 that an H200 should reach, whose copies move so many GB/s. The step is bound by memory, so
# other GPUs should reach as much of it as of the bandwidth.
AIM, AIM_GB_S = 8000, 4300
PRINTED_FAILURES, PRINTED_LINES = 16, 4


def cases_of(text):
    """Each case's result, and what those that failed said, from GoogleTest's lines: also where it did not end."""
    cases, failures, words = {}, {}, []
    for line in text.splitlines():
        mark = re.match(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+\.[^\s,]+)", line)
        if not mark:
            words.append(line)
        elif mark[1] == "RUN":
            words = []
            cases[mark[2]] = "not ended"
        elif cases.get(mark[2]) == "not ended":   # the summary at the end names some again
            cases[mark[2]] = {"OK": "passed"}.get(mark[1], mark[1].lower())
            if mark[1] == "FAILED":
                failures[mark[2]] = "\n".join(words)
    return {"cases": cases, "failures": failures}


LIBRARIES = re.compile(r"cudnn|cublas|cutlass|nvjet")
HAZARD = re.compile(r"Race reported between \w+ access at (\S+)")
OTHER_ERROR = re.compile(r"^=+ (?!Error: Race reported).*\b(Error: |Program hit|Invalid )", re.MULTILINE)


def hazards_of(text):
    """The kernels that compute-sanitizer's racecheck reports: those of NVIDIA's libraries, and others."""
    kernels = {name.partition("+0x")[0] for name in HAZARD.findall(text)}
    of_libraries = {name for name in kernels if LIBRARIES.search(name)}
    return sorted(of_libraries), sorted(kernels - of_libraries)


def objects_of(text):
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass   # words for people
    return {"figures": [value for value in found if isinstance(value, dict)]}


def runs_of(work):
    """All that was run, by kind and name; names of what failed; how many did what."""
    runs, failed = {"test": {}, "bench": {}}, []
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for line in (work / "runs").read_text().splitlines():
        name, kind, code, seconds, command = line.split("\t")[:5]
        out, err = ((work / f"{name}.{end}").read_text(errors="replace") for end in ("out", "err"))
        result = RESULTS.get(code, "failed")
        run = {"command": command, "result": result, "exit_code": int(code) if code.isdigit() else None,
               "seconds": int(seconds)}
        run |= cases_of(out) if kind == "test" else objects_of(out)
        of_libraries, of_others = hazards_of(out)
        run |= {key: names for key, names in (("hazards_of_libraries", of_libraries), ("hazards", of_others)) if names}
        # A library answers for what happens inside its kernel; the tests that ran it passed.
        if (code == "1" and of_libraries and not of_others and set(run["cases"].values()) == {"passed"}
                and not OTHER_ERROR.search(out)):
            run["result"] = result = "passed"
        if result != "passed":
            run["last_words"] = (out + err).splitlines()[-20:]
        elif kind == "bench":
            run["last_words"] = err.splitlines()[-20:]  # what was chosen, and warnings
        shard = re.fullmatch(r"(.+)\.\d+of(\d+)", name)
        run["shards"] = [1, int(shard[2])] if shard else [1, 1]
        add_run(runs[kind], shard[1] if shard else name, run)
    for name, run in runs["test"].items():
        there, all_shards = run.pop("shards")
        if run["result"] == "passed" and there < all_shards:
            run["result"] = f"failed: {all_shards - there} of {all_shards} shards are missing"
        elif run["result"] == "passed" and not run["cases"]:
            run["result"] = "failed: no test ran"
    for run in runs["bench"].values():
        run.pop("shards")
    for kind in runs.values():
        for name, run in kind.items():
            short = run["result"].partition(":")[0]
            count[short if short in count else "failed"] += 1
            if short not in ("passed", "skipped"):
                failed.append(f"{name} ({run['result']})")
    return runs, failed, count


def add_run(runs, name, run):
    """A shard's cases are those of the whole, whose result is the worst of them."""
    whole = runs.setdefault(name, run)
    if whole is run:
        return
    worst = ["passed", "skipped", "timed out", "failed"]
    if worst.index(run["result"].partition(":")[0]) > worst.index(whole["result"].partition(":")[0]):
        for key in ("result", "exit_code", "last_words", "command"):
            whole[key] = run.get(key)
    whole["seconds"] = max(whole["seconds"], run["seconds"])
    whole["shards"][0] += 1
    for key in ("cases", "failures"):
        whole[key] |= run[key]
    for key in ("hazards_of_libraries", "hazards"):
        if key in run:
            whole[key] = sorted(set(whole.get(key, [])) | set(run[key]))


class NotMeasured(Exception):
    """Why there is no figure."""


class Incomplete(NotMeasured):
    """A figure, and why it does not tell that its demand is met. It may tell that it is not."""

    def __init__(self, measured, reason):
        super().__init__(reason)
        self.measured = measured


def figures(runs, name, key=None, value=None):
    """The objects that a benchmark printed, of some kind; at least one."""
    run = runs["bench"].get(name)
    if run is None:
        raise NotMeasured(f"{name} was not run")
    found = [figure for figure in run["figures"] if key is None or figure.get(key) == value]
    if not found:
        last = f", {run['last_words'][-1]}" if run.get("last_words") else ""
        what = f" for {key} {value}" if key else ""
        raise NotMeasured(f"{name} has no figure{what}: {run['result']}{last}")
    return found


def number(figure, *path):
    for key in path:
        figure = figure.get(key) if isinstance(figure, dict) else None
    if not isinstance(figure, (int, float)) or isinstance(figure, bool):
        raise NotMeasured(f"there is no {'.'.join(path)} in what was printed")
    return figure


def rate(runs, name):
    return number(figures(runs, name)[0], "examples_per_second")


def torch_rates(runs, model, batch):
    """Images a second of PyTorch's modes that were measured; and why the others were not, by mode."""
    rates, why = {}, {}
    for name in TORCH_RUNS:
        run = runs["bench"].get(name, {"figures": [], "result": "not run"})
        for figure in run["figures"]:
            if (figure.get("model"), figure.get("batch")) != (model, batch):
                continue
            if "examples_per_second" in figure:
                rates[figure["mode"]] = figure["examples_per_second"]
            else:
                why[figure["mode"]] = figure.get("error", "no figure")
        last = run.get("last_words") or [""]
        reason = last[-1] if last[-1].startswith(run["result"]) else f"{run['result']} {last[-1]}".strip()
        for mode in TORCH_MODES:
            if ("compiled" in mode) == ("compiled" in name) and mode not in rates:
                why.setdefault(mode, reason)
    return rates, {mode: reason for mode, reason in why.items() if mode not in rates}


def over_torch(runs, name, model, batch):
    ours = rate(runs, name)
    rates, missing = torch_rates(runs, model, batch)
    reasons = {}
    for mode, why in missing.items():
        reasons.setdefault(why, []).append(mode)
    reason = "; ".join(f"PyTorch ({', '.join(modes)}): {why}" for why, modes in reasons.items())
    if not rates:
        raise NotMeasured(reason)
    ratio = ours / max(rates.values())
    if missing:
        raise Incomplete(ratio, reason)
    return ratio


def all_reduce(runs, dtype, replicas):
    row = figures(runs, f"all_reduce_{replicas}_{dtype}")[0]
    if number(row, "wrong") > 0:
        raise NotMeasured(f"{row['wrong']} elements of the sums are wrong")
    return number(row, "roofline_percent") / 100


def of_table(runs, bench, dtype, key):
    for table in figures(runs, "device", "bench", bench):
        if table["dtype"] == dtype:
            return number(table, key)
    raise NotMeasured(f"device has no {bench} in {dtype}: {runs['bench']['device']['result']}")


def twins(runs):
    """Two replicas of resnet50 on the GPU over the faster of the runs of one, before and after."""
    alone = []
    for name in ("step_resnet50_128", "step_resnet50_128_again"):
        try:
            alone.append(rate(runs, name))
        except NotMeasured:
            pass
    if not alone:
        rate(runs, "step_resnet50_128")  # says why
    return rate(runs, "step_resnet50_128_twice") / max(alone)


def passed(runs, kind, name):
    run = runs[kind].get(name)
    if run is None:
        raise NotMeasured(f"{name} was not run")
    if run["result"] == "timed out" and not run.get("failures"):
        raise NotMeasured(f"{name} timed out")
    if run["result"].startswith("skipped"):
        last = f", {run['last_words'][-1]}" if run.get("last_words") else ""
        raise NotMeasured(f"{name}: {run['result']}{last}")
    return run["result"] == "passed"


def accuracy_lost(runs, name):
    processor = number(figures(runs, "train_digits_processor")[0], "test_accuracy")
    return processor - number(figures(runs, name)[0], "test_accuracy")


def as_graphs(runs):
    """Whether the steps that were timed were started as graphs, on every model."""
    names = ("step_resnet50_256", "step_resnet50_32", "step_mnist_cnn_128")
    return all(number(figures(runs, name)[0], "steps_as_graphs") > 0 for name in names)


def aim(runs):
    """Images a second over those that the bandwidth of this GPU's copies should give."""
    copied = number(figures(runs, "step_resnet50_256")[0], "roofline", "copy_gb_s")
    return rate(runs, "step_resnet50_256") / (AIM * copied / AIM_GB_S)


def whole_time(runs, seconds):
    """What had no time left, or was ended, would have taken longer."""
    short = [name for kind in runs.values() for name, run in kind.items()
             if run["result"] in ("timed out", RESULTS["late"])]
    if short:
        raise Incomplete(seconds, f"not all was run to its end: {', '.join(short)}")
    return seconds


def mirrors_equal(runs):
    """Training compares checksums of the mirrors' weights, and ends with an error where they differ; a test compares
    every number."""
    if not passed(runs, "bench", "train_digits_2_replicas"):
        return False
    case = runs["test"].get("gpu_train", {"cases": {}})["cases"].get(
        "GpuTrain.DigitsAreLearntAsWellAsOnTheProcessor", "not run")
    if case in ("not run", "skipped", "not ended"):
        raise NotMeasured(f"the test that compares every number: {case}")
    return case == "passed"


def same_bits(runs, name):
    found = figures(runs, name)[0]
    if "equal" not in found:
        raise NotMeasured(found.get("error", "nothing was compared"))
    return bool(found["equal"])


def tests_passed(runs):
    if not runs["test"]:
        raise NotMeasured("no test was run")
    wrong = [name for name, run in runs["test"].items() if run["result"] != "passed"]
    for name in wrong:
        run = runs["test"][name]
        if run["failures"] or not run["result"].startswith(("skipped", "timed out")):
            return False
    wrong = [name for name in wrong if not name.startswith("ops_under_")]  # demands of their own
    if wrong:
        raise NotMeasured("; ".join(f"{name}: {runs['test'][name]['result']}" for name in wrong))
    return True


AT_LEAST, AT_MOST, HOLDS = "at least", "at most", "holds"


def speed_demands():
    """Name, what is said of it, how it is judged, the target, what measures it."""
    found = [
        ("resnet50_256_over_pytorch", "resnet50, batch 256: images/s over PyTorch's fastest", AT_LEAST, 1.2,
         lambda runs: over_torch(runs, "step_resnet50_256", "resnet50", 256)),
        ("resnet50_32_over_pytorch", "resnet50, batch 32: images/s over PyTorch's fastest", AT_LEAST, 1.5,
         lambda runs: over_torch(runs, "step_resnet50_32", "resnet50", 32)),
        ("mnist_cnn_128_over_pytorch", "mnist_cnn, batch 128: images/s over PyTorch's fastest", AT_LEAST, 2.0,
         lambda runs: over_torch(runs, "step_mnist_cnn_128", "mnist_cnn", 128)),
        ("resnet50_256_aim", f"resnet50, batch 256: images/s over {AIM} at {AIM_GB_S} GB/s (an aim)", AT_LEAST, 1.0, aim),
    ]
    for dtype in ("bfloat16", "float32"):
        for replicas in (2, 4, 8):
            found.append((f"all_reduce_{replicas}_{dtype}",
                          f"direct all-reduce of {replicas} replicas, 64 MiB of {dtype}: share of the copy", AT_LEAST,
                          0.85, lambda runs, d=dtype, n=replicas: all_reduce(runs, d, n)))
    for dtype in ("bfloat16", "float32"):
        found.append((f"optimizer_{dtype}", f"SGD with momentum, 25.6 M parameters in {dtype}: share of the copy",
                      AT_LEAST, 0.85, lambda runs, d=dtype: of_table(runs, "optimizer", d, "share_of_copy")))
    for dtype in ("bfloat16", "float32"):
        found.append((f"fused_update_{dtype}", f"update of 4 replicas inside the sums, {dtype}: times as fast as separate",
                      AT_LEAST, 1.5, lambda runs, d=dtype: of_table(runs, "update", d, "fused_over_separate")))
    return found + [
        ("two_replicas_resnet50", "two replicas of resnet50 at 128: images/s over those of one", AT_LEAST, 0.97, twins),
        ("steps_are_graphs", "the timed steps of resnet50 and mnist_cnn were started as CUDA graphs", HOLDS, True,
         as_graphs),
    ]


def correctness_demands():
    lost = [("digits_accuracy", "digits, two replicas", "digits_2_replicas"),
            ("digits_of_processes_accuracy", "digits, two processes by IPC", "digits_2_processes"),
            ("digits_of_servers_accuracy", "digits, a server and two workers", "digits_servers")]
    return [
        *((name, f"{what}: accuracy lost to the processor's run", AT_MOST, ACCURACY,
           lambda runs, r=run: accuracy_lost(runs, f"train_{r}")) for name, what, run in lost),
        ("digits_mirrors_equal", "digits on two replicas: mirrors are equal, bit for bit", HOLDS, True, mirrors_equal),
        ("digits_runs_equal", "digits on two replicas: two runs are equal, bit for bit", HOLDS, True,
         lambda runs: same_bits(runs, "digits_same_bits")),
        ("digits_resumed_equal", "digits on two replicas: a resumed run is equal, bit for bit", HOLDS, True,
         lambda runs: same_bits(runs, "digits_resumed_bits")),
        ("tests", "tests of the GPU pass", HOLDS, True, tests_passed),
        *((tool, f"compute-sanitizer's {tool} finds nothing in the tests of ops", HOLDS, True,
           lambda runs, t=tool: passed(runs, "test", f"ops_under_{t}"))
          for tool in SANITIZERS),
    ]


def all_demands(runs, seconds, most):
    """Those of the parts that were run."""
    found = []
    if any(name.startswith(("step_", "all_reduce_")) or name == "device" for name in runs["bench"]):
        found += speed_demands()
    if runs["test"]:
        found += correctness_demands()
    return found + [("seconds", "seconds that all of this took", AT_MOST, most, lambda runs: whole_time(runs, seconds))]


def judged(runs, seconds, most):
    """The table: of each demand what is wanted, what was measured, whether it is met, or why nobody knows."""
    table = {}
    for name, text, how, target, measure in all_demands(runs, seconds, most):
        row = {"demand": text, "wanted": how, "target": target, "measured": None, "met": None, "reason": None}
        known = True
        try:
            row["measured"] = measure(runs)
        except Incomplete as incomplete:
            row["measured"], row["reason"], known = incomplete.measured, str(incomplete), False
        except NotMeasured as reason:
            row["reason"] = str(reason)
        if row["measured"] is not None:
            met = (row["measured"] >= target if how == AT_LEAST else
                   row["measured"] <= target if how == AT_MOST else bool(row["measured"]))
            row["met"] = None if met and not known else met
        table[name] = row
    return table


def as_text(row):
    def short(value):
        return "yes" if value is True else "no" if value is False else "" if value is None else f"{value:.4g}"
    wanted = "" if row["wanted"] == HOLDS else f"{row['wanted']} {short(row['target'])}"
    verdict = {True: "met", False: "MISSED", None: "not measured"}[row["met"]]
    if row["met"] is None and row["measured"] is not None:
        verdict = "not known"
    reason = f": {row['reason']}" if row["reason"] else ""
    return f"{row['demand']:72} {wanted:14} {short(row['measured']):>9}  {verdict}{reason}"


def print_hazards(runs):
    for name, run in runs["test"].items():
        for kernel in run.get("hazards", []):
            print(f"gpu_check: {name}: a race is reported in {kernel[:120]}")
        for kernel in run.get("hazards_of_libraries", []):
            print(f"gpu_check: {name}: a race is reported inside a kernel of NVIDIA's libraries, {kernel[:120]}")


def print_rooflines(runs):
    """Of steps on devices, what their memory and products would allow, both measured in the same run."""
    for name, run in runs["bench"].items():
        for figure in run["figures"]:
            roof = figure.get("roofline")
            if roof:
                print(f"gpu_check: {name}: {figure['examples_per_second']:.0f} images/s, {100 * roof['share']:.1f} % of "
                      f"the {roof['examples_per_second']:.0f} that a copy of {roof['copy_gb_s']:.0f} GB/s and products of "
                      f"{roof['product_tflop_s']:.1f} TFLOP/s allow")


def print_failures(runs):
    """The first words of what failed, so much that the table stays in sight."""
    cases = []
    for kind in runs.values():
        for name, run in kind.items():
            cases += [(f"{name}: {case}", words) for case, words in run.get("failures", {}).items()]
            if run["result"].startswith("failed") and not run.get("failures"):
                cases.append((name, "\n".join(run.get("last_words") or ["no words"])))
    for name, words in cases[:PRINTED_FAILURES]:
        print(f"gpu_check: failed: {name}")
        for line in [line for line in words.splitlines() if line.strip()][:PRINTED_LINES]:
            print(f"    {line[:240]}")
    if len(cases) > PRINTED_FAILURES:
        print(f"gpu_check: {len(cases) - PRINTED_FAILURES} more failures stand in the JSON")


def print_table(table):
    print("gpu_check: what is demanded")
    for row in table.values():
        print("  " + as_text(row))
    count = {verdict: sum(row["met"] is verdict for row in table.values()) for verdict in (True, False, None)}
    print(f"gpu_check: {count[True]} demands met, {count[False]} missed, {count[None]} not known")


def compare(first, second):
    """Whether two folders of checkpoints hold the same numbers: every shard has the same bytes."""
    sums = []
    for folder in (first, second):
        files = sorted(path for path in pathlib.Path(folder).rglob("*.safetensors"))
        sums.append({str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    if not sums[0] or not sums[1]:
        return {"error": f"there is no checkpoint in {second if sums[0] else first}"}
    names = sums[0].keys() | sums[1].keys()
    return {"files": len(sums[0]), "equal": sums[0] == sums[1],
            "others": sorted(name for name in names if sums[0].get(name) != sums[1].get(name))}


def report(work, path, version, seconds, most):
    runs, failed, count = runs_of(work)
    doctor = json.loads((work / "doctor").read_text())
    table = judged(runs, seconds, most)
    whole = {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "version": version,
             "devices": {name.partition(" ")[2]: part["text"] for name, part in doctor.items()
                         if name.startswith("device ")},
             "kernel": platform.release(), "glibc": platform.libc_ver()[1], "python": platform.python_version(),
             "seconds": seconds, "demands": table, "doctor": doctor, "tests": runs["test"], "benches": runs["bench"]}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (work / "failed").write_text(", ".join(failed), encoding="utf-8")
    print_failures(runs)
    print_hazards(runs)
    print_rooflines(runs)
    print_table(table)
    print("gpu_check: " + ", ".join(f"{many} {what}" for what, many in count.items()))


def main(arguments):
    if arguments[:1] == ["--compare"] and len(arguments) == 3:
        print(json.dumps(compare(*arguments[1:])))
        return 0
    if len(arguments) != 5:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    report(pathlib.Path(arguments[0]), pathlib.Path(arguments[1]), arguments[2], int(arguments[3]), int(arguments[4]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
