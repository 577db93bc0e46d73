#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All-reduce of lockstep beside Open MPI, MPICH and Gloo, on one host, in turn.

float32, in place; every round inputs are written before and results compared after, the time is the slowest
rank's, of a run the median of its rounds, of several runs in turn their median. lockstep's and Open MPI's come
from one run of `lockstep bench --compare mpi`; MPICH and Gloo are driven by the programs beside this script,
which it compiles into BUILD/peers. Where a peer is missing, a line says what to install.

Prints a table of bytes and libraries in microseconds, with lockstep's ratio to the best peer, and writes
all_reduce.json and all_reduce.svg. Needs a release build of lockstep with Open MPI. Keep other work off the
machine: some ten minutes, three with --quick.
"""
import argparse
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from processes import Failed, cpu, launch, objects, outputs

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # bench/
import plot

HERE = pathlib.Path(__file__).resolve().parent
KIB, MIB = 1024, 1024 * 1024
SECONDS = 600  # the most that one run may take
SHARED_CORE = 150  # ns: a meeting below this is one of two threads of a real core
LARGE, ALL = 64 * MIB, 64 * KIB
FLAGS = ["-std=c++20", "-O3", "-march=native", f"-I{HERE.parent.parent}"]


def size(text):
    for unit, factor in (("KiB", KIB), ("MiB", MIB), ("B", 1), ("", 1)):
        if text.endswith(unit) and text[:len(text) - len(unit)].isdigit():
            return int(text[:len(text) - len(unit)]) * factor
    raise argparse.ArgumentTypeError(f"must be a size such as 4096, 64KiB, 256MiB, not '{text}'")


def run(commands, environment=None):
    """Runs processes side by side; the objects that the first one printed. All must end well."""
    try:
        return objects(outputs([launch(command, **(environment or {})) for command in commands], SECONDS)[0])
    except Failed as failed:
        raise Failed(f"{commands[0][0]}: {failed}") from None


class Comparison:
    def __init__(self, options):
        self.options = options
        self.cores = len(os.sched_getaffinity(0))
        self.folder = pathlib.Path(options.out or f"{options.build}/peers")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.missing = []
        self.mpich = self.compiled("MPICH", "mpicxx.mpich", "mpi_all_reduce", [], "mpich libmpich-dev")
        self.gloo = self.compiled("Gloo", "c++", "gloo_all_reduce", ["-lgloo", "-pthread"], "libgloo-dev")

    def compiled(self, peer, compiler, program, libraries, packages):
        out = self.folder / program
        if shutil.which(compiler):
            done = subprocess.run([compiler, *FLAGS, str(HERE / f"{program}.cpp"), "-o", str(out), *libraries],
                                  capture_output=True, text=True)
            if done.returncode == 0:
                return out
            why = next((line for line in done.stderr.splitlines() if "error" in line), "it does not compile")
        else:
            why = f"no {compiler}"
        self.missing.append(f"{peer} is left out ({why}); Debian: apt-get install {packages}")
        return None

    def sizes(self):
        return [str(self.options.min), str(self.options.max), str(self.options.factor)]

    def of_lockstep(self, ranks):
        """lockstep's times, and Open MPI's of the same run."""
        command = ["mpirun", "-n", str(ranks)]
        if os.geteuid() == 0:
            command.append("--allow-run-as-root")
        command += ["--oversubscribe", "--bind-to", "none"]
        if ranks > self.cores:
            command += ["--mca", "mpi_yield_when_idle", "1"]
        rows = run([[*command, f"{self.options.build}/tools/lockstep", "bench", "--json", "--compare", "mpi",
                     "--algorithm", self.options.algorithm, "--min", str(self.options.min), "--max",
                     str(self.options.max), "--factor", str(self.options.factor)]])
        if any(row["wrong"] or row["mpi_wrong"] for row in rows):
            raise Failed("lockstep or Open MPI: wrong sums")
        return {"lockstep": {row["bytes"]: (row["in_place_us"], near(row)) for row in rows},
                "Open MPI": {row["bytes"]: (row["mpi_us"], near(row)) for row in rows}}

    def of_mpich(self, ranks, file):
        yields = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"} if ranks > self.cores else {}
        rows = run([["mpiexec.mpich", "-n", str(ranks), str(self.mpich), file, *self.sizes()]], yields)
        return {"MPICH": {row["bytes"]: (row["us"], near(row)) for row in rows}}

    def of_gloo(self, ranks, file, folder):
        rows = run([[str(self.gloo), file, *self.sizes(), str(rank), str(ranks), folder] for rank in range(ranks)])
        return {"Gloo": {row["bytes"]: (row["us"], near(row)) for row in rows}}

    def one_round(self, ranks):
        found = self.of_lockstep(ranks)
        for program, measure in ((self.mpich, self.of_mpich), (self.gloo, self.of_gloo)):
            if not program:
                continue
            with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as scratch:
                file = pathlib.Path(scratch) / "flags"
                file.touch()
                extra = []
                if program is self.gloo:
                    extra = [str(pathlib.Path(scratch) / "store")]
                    os.mkdir(extra[0])
                found.update(measure(ranks, str(file), *extra))
        return found

    def case(self, ranks):
        rounds = [self.one_round(ranks) for _ in range(self.options.rounds)]
        libraries = list(rounds[0])
        table = []
        for count in sorted(rounds[0]["lockstep"]):
            samples = {name: [one[name][count] for one in rounds] for name in libraries}
            alike, cores = comparable(samples) if ranks <= self.cores else (None, None)
            table.append({"bytes": count, "cores": cores, "us": {
                name: statistics.median(us for us, where in found if alike is None or where == alike)
                for name, found in samples.items()}})
        for row in table:
            peers = {name: us for name, us in row["us"].items() if name != "lockstep"}
            row["best"] = min(peers, key=peers.get)
            row["ratio"] = peers[row["best"]] / row["us"]["lockstep"]
            row["to_open_mpi"] = peers["Open MPI"] / row["us"]["lockstep"]
        return {"ranks": ranks, "cores": self.cores, "libraries": libraries, "table": table, "means": means(table)}


def near(row):
    """Whether ranks 0 and 1 met as fast as on one real core, just before that size or after it."""
    return row["barrier_ns"] < SHARED_CORE


def comparable(samples):
    """On virtual machines the processors move from one real core to two and back, which changes small sizes by a
    factor of two. So libraries are compared where they were measured in the same state: the one of which every
    library has samples, and of which there are more. Else all together, which is said."""
    counts = {state: [sum(where == state for _, where in found) for found in samples.values()]
              for state in (True, False)}
    state = max(counts, key=lambda one: (min(counts[one]) > 0, sum(counts[one])))
    if min(counts[state]) == 0:
        return None, "mixed"
    return state, "one" if state else "two"


def means(table):
    """Geometric means of the ratios, by range of sizes; those that there are."""
    found = {}
    for name, least, most in (("64 KiB to 256 MiB", ALL, 256 * MIB), ("64 MiB and above", LARGE, 1 << 60),
                              ("4 and 16 KiB", 4 * KIB, 16 * KIB), ("below 4 KiB", 0, 4 * KIB - 1)):
        rows = [row for row in table if least <= row["bytes"] <= most]
        if not rows:
            continue
        found[name] = {key: math.exp(statistics.fmean(math.log(row[key]) for row in rows))
                       for key in ("ratio", "to_open_mpi")}
        found[name]["least"] = min(row["ratio"] for row in rows)
    return found


def show(case):
    print(f"\n{case['ranks']} processes on {case['cores']} cores, microseconds")
    print(f"{'bytes':>10}" + "".join(f"{name:>12}" for name in case["libraries"]) +
          f"{'to the best':>13}{'to Open MPI':>13}  best peer, real cores")
    for row in case["table"]:
        print(f"{plot.size_text(row['bytes']):>10}" + "".join(f"{row['us'][name]:12.2f}" for name in case["libraries"]) +
              f"{row['ratio']:13.2f}{row['to_open_mpi']:13.2f}  {row['best']}" +
              (f", {row['cores']}" if row["cores"] else ""))
    for name, mean in case["means"].items():
        print(f"  {name}: {mean['ratio']:.2f} times the best peer on geometric mean (least {mean['least']:.2f}), "
              f"{mean['to_open_mpi']:.2f} times Open MPI")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent.parent / "build"), help="folder of lockstep's build (build)")
    parser.add_argument("--out", help="where programs, all_reduce.json and all_reduce.svg go (BUILD/peers)")
    parser.add_argument("--ranks", default="2,4", help="numbers of processes (2,4)")
    parser.add_argument("--min", type=size, default=256)
    parser.add_argument("--max", type=size, default=256 * MIB)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=0, help="runs of each library in turn (3; 1 with --quick)")
    parser.add_argument("--algorithm", default="auto", help="lockstep's, one (auto)")
    parser.add_argument("--quick", action="store_true", help="one run of each, up to 16 MiB")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    if options.quick:
        options.max = min(options.max, 16 * MIB)
    if not os.access(f"{options.build}/tools/lockstep", os.X_OK):
        sys.exit(f"all_reduce: no {options.build}/tools/lockstep: build first (meson setup build "
                 "--buildtype=release; ninja -C build)")
    if not shutil.which("mpirun"):
        sys.exit("all_reduce: no mpirun; Debian: apt-get install openmpi-bin libopenmpi-dev, then build lockstep again")
    try:
        comparison = Comparison(options)
        for line in comparison.missing:
            print(line)
        cases = []
        for ranks in options.ranks.split(","):
            cases.append(comparison.case(int(ranks)))
            show(cases[-1])
    except Failed as failed:
        sys.exit(f"all_reduce: {failed}")
    result = {"when": time.strftime("%Y-%m-%d"), "cpu": cpu(), "cores": comparison.cores, "rounds": options.rounds,
              "cases": cases}
    (comparison.folder / "all_reduce.json").write_text(json.dumps(result, indent=1) + "\n")
    (comparison.folder / "all_reduce.svg").write_text(plot.draw(result))
    print(f"\n{comparison.folder}/all_reduce.json and all_reduce.svg written")
    if options.json:
        print(json.dumps({f"{case['ranks']} processes": case["means"] for case in cases}))


if __name__ == "__main__":
    main()
