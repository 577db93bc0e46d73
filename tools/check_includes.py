#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the table of who may include whom, and the preprocessor to includes alone.

usage: check_includes.py ROOT

Prints one line for each offence and returns 1 when there is one. Only direct includes count: a
header that a folder may include may itself include what the folder may not.
"""
import pathlib
import re
import sys

DEVICES = ["engine/reference", "engine/cpu", "engine/cuda"]
OPS = ["engine/base", "engine/device", "engine/tensor", "engine/ops"]
TRAIN = OPS + ["engine/nn", "engine/optim", "engine/data"]
RUNS = ["engine/checkpoint", "engine/report"]
ENGINE = TRAIN + RUNS + ["engine/train", "engine/runtime"]
PLANS = ["collectives/" + part for part in ("plan", "algorithms", "check", "run")]
JOBS = PLANS + ["collectives/" + part for part in ("bootstrap", "topology", "cost", "memory", "tcp")]
SERVERS = ["strategies/parameter_server/" + part for part in ("rpc", "cluster", "server", "worker")]

# An entry names the rows that its files may include besides their own. The order is the order of the
# layers: an entry names only entries above it, so that no circle is possible (checked below).
MAY = {
    "engine/base": [],
    "engine/device": ["engine/base"],
    "engine/tensor": ["engine/base", "engine/device"],
    "engine/ops": ["engine/base", "engine/device", "engine/tensor"],
    "engine/reference": OPS,
    "engine/cpu": OPS,
    "engine/cuda": OPS,
    "engine/runtime": OPS + DEVICES,
    "engine/nn": OPS,
    "engine/optim": OPS + ["engine/nn"],
    "engine/data": ["engine/base", "engine/device", "engine/tensor"],
    "engine/checkpoint": TRAIN,
    "engine/report": TRAIN,
    "engine/train": TRAIN + RUNS,
    "collectives/plan": OPS,
    "collectives/algorithms": OPS + ["collectives/plan"],
    "collectives/check": OPS + ["collectives/plan"],
    "collectives/run": OPS + ["collectives/plan"],
    "collectives/bootstrap": ["engine/base"],
    # A topology names the algorithms whose times it holds.
    "collectives/topology": OPS + ["collectives/plan", "collectives/algorithms", "collectives/bootstrap"],
    "collectives/hwloc": ["engine/base", "collectives/topology"],
    # Costs are of plans; how a plan is run and timed is handed in.
    "collectives/cost": OPS + ["collectives/" + part for part in ("plan", "algorithms", "bootstrap", "topology")],
    "collectives/memory": OPS + ["collectives/run", "collectives/topology"],
    "collectives/tcp": OPS + ["collectives/" + part for part in ("run", "bootstrap", "memory")],
    "collectives/mpi": OPS + ["collectives/run", "collectives/bootstrap"],
    "collectives/nccl": OPS + ["collectives/run", "collectives/bootstrap"],
    "collectives/job": OPS + JOBS,
    "collectives/communicator": OPS + JOBS + ["collectives/job"],
    # MPI is the session's alone: Mirrored never touches it.
    "strategies/synchronous": ENGINE + JOBS + ["collectives/job"],
    # What parameter servers do knows nobody's network, but memory that tasks of a host share; gRPC carries the rest.
    "strategies/parameter_server/rpc": ["engine/base", "engine/device", "engine/tensor", "collectives/memory"],
    "strategies/parameter_server/cluster": TRAIN + ["collectives/cost"] + SERVERS[:1],
    "strategies/parameter_server/server": ENGINE + ["collectives/topology"] + SERVERS[:2],
    "strategies/parameter_server/worker": ENGINE + ["collectives/bootstrap", "collectives/job"] + SERVERS[:3],
    "strategies/grpc": ["engine/base"] + SERVERS[:1],
    "strategies/pmix": ["engine/base"],
    "strategies/launchers": ["engine/base", "collectives/tcp"],
    "strategies/session": ENGINE + DEVICES + JOBS
    + ["collectives/" + part for part in ("job", "communicator", "mpi", "nccl")]
    + ["strategies/synchronous", "strategies/grpc", "strategies/pmix", "strategies/launchers"] + SERVERS,
    "models": ["engine/base", "engine/tensor", "engine/nn"],
    "tools": None,  # everything
    "bench": None,
    "test": None,
}
LIBRARIES = ("engine", "collectives", "strategies", "models")
NOBODYS = ("tools", "bench", "test")  # no other folder includes these, but tests all three, and benchmarks tools

# Foreign headers that only some rows may see; tests and benchmarks may see all of them.
FOREIGN = [
    (re.compile(r"mpi\.h$|mpi-ext\.h$"), ["collectives/mpi"]),
    (re.compile(r"dnnl|oneapi/"), ["engine/cpu"]),
    (re.compile(r"Eigen/|unsupported/Eigen"), ["engine/cpu"]),
    (re.compile(r"hwy/"), ["engine/cpu"]),
    (re.compile(r"hwloc"), ["collectives/hwloc"]),
    (re.compile(r"nvtx"), ["engine/cuda"]),
    (re.compile(r"cuda|cublas|cudnn"), ["engine/cuda", "collectives/cuda", "collectives/nccl"]),
    (re.compile(r"nccl"), ["collectives/nccl"]),
    (re.compile(r"pmix"), ["strategies/pmix"]),
    (re.compile(r"grpc"), ["strategies/grpc"]),
    (re.compile(r"openssl/"), ["collectives/tcp", "strategies/grpc"]),
    (re.compile(r"google/protobuf|absl/"), []),
    (re.compile(r"Random123/"), ["engine/base"]),
    (re.compile(r"CLI/"), ["tools"]),
    (re.compile(r"gtest/|gmock/"), []),
]

# What protoc makes of our own files, in the build folder: heads of messages are read by few.
GENERATED = (re.compile(r"\.pb\.h$"), SERVERS + ["strategies/grpc"])

DIRECTIVE = re.compile(r"\s*(?:#|%:|\?\?=)\s*(\w*)(.*)")
QUOTED = re.compile(r'\s*"([^"]+)"')
ANGLED = re.compile(r"\s*<([^>]+)>")


def row_of(path):
    """The row of MAY that a path from the root belongs to, or None."""
    return max((row for row in MAY if path.startswith(row + "/")), key=len, default=None)


def check_table():
    above = []
    for row, may in MAY.items():
        for other in may or []:
            if other not in above:
                yield f"the table: {row} names {other}, which does not stand above it"
        above.append(row)


def check_include(root, path, here, rest):
    quoted, angled = QUOTED.match(rest), ANGLED.match(rest)
    if not quoted and not angled:
        yield f"cannot read the include: {rest.strip()}"
        return
    name = (quoted or angled).group(1)
    ours = name.split("/")[0] in LIBRARIES + NOBODYS
    if angled and ours:
        yield f'<{name}> is ours: write "{name}"'
    pattern, rows = GENERATED
    if pattern.search(name) and here not in rows + ["test", "bench"]:
        yield f"<{name}> belongs into {', '.join(rows)} alone, not into {here}"
    if not ours:
        if quoted and not (root / name).exists():
            yield f'"{name}" is not a path from the root; foreign headers stand in <>'
        for pattern, rows in FOREIGN:
            if pattern.match(name) and here not in rows and here not in ("test", "bench"):
                yield f"<{name}> belongs into {', '.join(rows) or 'test'} alone, not into {here}"
        return
    there = row_of(name)
    if there is None:
        yield f"{name}: its folder is not in the table"
    elif there != here and MAY[here] is not None and there not in MAY[here]:
        yield f"{here} may not include {there} ({name})"
    elif there in NOBODYS and there != here and here != "test" and (here, there) != ("bench", "tools"):
        yield f"nobody includes {there} ({name})"


def highway_idiom(path):
    """The lines with which Highway compiles a file once for each instruction set: the one exception."""
    if not path.startswith("engine/cpu/"):
        return []
    guard = "LOCKSTEP_" + re.sub(r"\W", "_", path).upper() + "_"
    if path.endswith("-inl.h"):
        return [f"#if defined({guard}) == defined(HWY_TARGET_TOGGLE)", f"#ifdef {guard}",
                f"#undef {guard}", "#else", f"#define {guard}", "#endif"]
    return ["#undef HWY_TARGET_INCLUDE", f'#define HWY_TARGET_INCLUDE "{path}"', "#if HWY_ONCE",
            "#endif"]


def check_file(root, path):
    here = row_of(path)
    if here is None:
        yield f"{path}: its folder is not in the table"
        return
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    idiom = highway_idiom(path)
    for number, line in enumerate(lines, 1):
        directive = DIRECTIVE.match(line)
        if not directive:
            continue
        word, rest = directive.groups()
        if word == "include":
            for offence in check_include(root, path, here, rest):
                yield f"{path}:{number}: {offence}"
        elif word in ("define", "undef", "if", "ifdef", "ifndef", "elif", "elifdef", "elifndef",
                      "else", "endif", "include_next", "import") and line not in idiom:
            yield f"{path}:{number}: no macros, no conditionals (#{word})"


def sources(root):
    for top in LIBRARIES + NOBODYS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".h", ".cpp", ".cu", ".cuh"):
                yield path.relative_to(root).as_posix()


def check(root):
    offences = list(check_table())
    for path in sources(root):
        offences += check_file(root, path)
    return offences


def main(arguments):
    if len(arguments) != 1 or not (pathlib.Path(arguments[0]) / "engine").is_dir():
        print("usage: check_includes.py ROOT (the folder that holds engine/)")
        return 2
    offences = check(pathlib.Path(arguments[0]))
    print("\n".join(offences) if offences else "every include goes the way the table allows")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
