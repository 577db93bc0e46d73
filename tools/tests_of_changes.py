#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Names the tests of `meson test` that hold what has changed, one a line.

usage: tests_of_changes.py BUILD [REVISION]

What has changed: files that differ from REVISION, and new ones; REVISION is by default the last commit, or the one
before where nothing differs from it. The tests: the unit programs of the folders in which they lie, the scripts of
test/ that have changed, and the lints.
"""
import json
import pathlib
import subprocess
import sys

# The first line whose path begins so: the programs that hold what lies there.
PROGRAMS = [
    ("engine/train/", "checkpoint"),
    ("engine/cpu/", "ops"),
    ("engine/ops/", "ops"),
    ("engine/reference/", "ops"),
    ("engine/cuda/kernels/", "cuda_kernels cuda_ops"),
    ("engine/cuda/", "cuda"),
    ("engine/", "engine"),
    ("collectives/nccl/", "nccl"),
    ("collectives/memory/", "wire"),
    ("collectives/tcp/", "wire"),
    ("collectives/mpi/", "mpi_bootstrap_2 mpi_failure"),
    ("collectives/", "collectives"),
    ("strategies/grpc/", "servers"),
    ("strategies/parameter_server/", "servers"),
    ("strategies/pmix/", "exchange"),
    ("strategies/session/", "strategies"),
    ("strategies/", "strategies job_ranks"),
    ("models/", "strategies"),
    ("bench/", "bench_device tools"),
    ("tools/bench", "tools bench_refused"),
    ("tools/quickstart", "quickstart_sh"),
    ("tools/build_folder", "quickstart_sh"),
    ("tools/setup", "setup_sh"),
    ("tools/bundle", "bundle_sh"),
    ("tools/gpu_report", "gpu_report_py"),
    ("tools/count_tests", "count_tests_py"),
    ("tools/tests_of_changes", "tests_of_changes_py"),
    ("tools/virtual_cluster", "virtual_cluster_sh"),
    ("tools/task_cluster", "task_cluster_sh"),
    ("tools/install/", "install"),
    ("tools/", "tools program"),
    ("test/fuzz/", "fuzz"),
    ("test/wire/", "wire"),
]


def lines_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def changed(revision):
    """Paths from the root of files that differ from the revision, and of new ones."""
    new = lines_of("git", "ls-files", "--others", "--exclude-standard")
    if revision:
        return lines_of("git", "diff", "--name-only", revision) + new
    return lines_of("git", "diff", "--name-only", "HEAD") + new or lines_of("git", "diff", "--name-only", "HEAD~1")


def programs_of(path):
    """Names of programs, without the numbers of their shards."""
    if path.endswith(".md") or (path.startswith("test/") and path.endswith(".py")):
        return set()
    below = path.removeprefix("test/")   # tests mirror the tree
    for candidate in (path, below):
        for prefix, programs in PROGRAMS:
            if candidate.startswith(prefix):
                return set(programs.split())
    return set()


def chosen(tests, paths):
    """Names of those of `tests` (name, suites, command) that hold the files at `paths`."""
    programs = set().union(*(programs_of(path) for path in paths)) if paths else set()
    headers = any(path.endswith(".h") for path in paths)
    scripts = {pathlib.Path(path).name for path in paths if path.startswith("test/") and path.endswith(".py")}
    names = []
    for test in tests:
        name = test["name"]
        lint = any(suite.endswith("lint") for suite in test["suite"]) and (headers or name != "headers")
        program = name in programs or name.rstrip("0123456789").rstrip("_") in programs
        script = any(pathlib.Path(word).name in scripts for word in test["cmd"])
        if lint or program or script:
            names.append(name)
    return names


def main():
    tests = json.loads("\n".join(lines_of("meson", "introspect", "--tests", sys.argv[1])))
    revision = sys.argv[2] if len(sys.argv) > 2 else ""
    print("\n".join(chosen(tests, changed(revision))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
