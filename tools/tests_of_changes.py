#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Names the tests of `meson test` that hold what has changed, one a line.

usage: tests_of_changes.py BUILD [REVISION]

What has changed: files that differ from REVISION, and new ones; REVISION is by default the last commit, or the one
before where nothing differs from it. The tests: of a source in test/, the tests that run what it is built into, and of
a header those of the sources that include it; of a README, those that read it; of another file, the unit programs of its folder, and of a command its
scripts; the scripts of test/ that have changed; and the lints.

exit code: 0 the names were printed, 1 git or meson failed
"""
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNIT = re.compile(r"-unity[0-9]+\.cpp$")

# The first line whose path begins so: the programs that hold what lies there.
PROGRAMS = [
    ("engine/checkpoint/", "checkpoint"),
    ("engine/report/", "checkpoint"),
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
    ("collectives/job/", "strategies job_ranks"),
    ("collectives/communicator/", "strategies"),
    ("collectives/cost/", "costs collectives"),
    ("collectives/topology/", "costs collectives wire"),
    ("collectives/", "collectives"),
    ("strategies/grpc/", "servers"),
    ("strategies/parameter_server/", "servers"),
    ("strategies/pmix/", "exchange"),
    ("strategies/session/", "strategies"),
    ("strategies/", "strategies job_ranks"),
    ("models/", "strategies"),
    ("bench/", "bench_device tools"),
    ("tools/bench", "tools bench_refused bench_device"),
    ("tools/quickstart", "quickstart_sh"),
    ("tools/build_folder", "quickstart_sh"),
    ("tools/setup", "setup_sh"),
    ("tools/bundle", "bundle_sh"),
    ("tools/gpu_report", "gpu_report_py gpu_rehearsal_py"),
    ("tools/gpu_check", "gpu_rehearsal_py bundle_sh"),
    ("tools/count_tests", "count_tests_py"),
    ("tools/tests_of_changes", "tests_of_changes_py"),
    ("tools/virtual_cluster", "virtual_cluster_sh"),
    ("tools/task_cluster", "task_cluster_sh"),
    ("tools/install/", "install"),
    ("tools/completion", "tools help install"),
    ("tools/man_page", "tools help install"),
    ("tools/config_file", "tools program"),
    ("tools/data_choice", "tools program data files"),
    ("tools/doctor", "tools doctor launchers"),
    ("tools/help", "tools help texts"),
    ("tools/plan", "tools plan output"),
    ("tools/predict", "tools program output"),
    ("tools/records", "tools output streams"),
    ("tools/serve", "serve servers"),
    ("tools/", "tools program help output texts launchers"),
]
# What reads a README besides the tests of all READMEs.
READERS = {"README.md": {"quickstart_sh"}, "strategies/launchers/README.md": {"quickstart_sh"}, "strategies/README.md": {"task_cluster_train"},
           "collectives/README.md": {"costs"}}
INCLUDE = re.compile(r'^#include "(test/[^"]+)"$', re.MULTILINE)


def lines_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def changed(revision):
    """Paths from the root of files that differ from the revision, and of new ones."""
    new = lines_of("git", "ls-files", "--others", "--exclude-standard")
    if revision:
        return lines_of("git", "diff", "--name-only", revision) + new
    return lines_of("git", "diff", "--name-only", "HEAD") + new or lines_of("git", "diff", "--name-only", "HEAD~1")


def programs_of(path):
    """Names of the programs of a folder, without the numbers of their shards."""
    if path.endswith("README.md"):
        return {"readme_commands", "install"} | READERS.get(path, set())
    if path.endswith(".md") or (path.startswith("test/") and not path.endswith(".h")):
        return set()
    for prefix, programs in PROGRAMS:
        if path.removeprefix("test/").startswith(prefix):   # tests mirror the tree
            return set(programs.split())
    return set()


def sources_of(part):
    """Those of a target, and in a build of units those that the units include."""
    for name in part["sources"]:
        yield name
    for name in part["generated_sources"]:
        if UNIT.search(name) and os.path.exists(name):
            yield from re.findall(r"^#include<(.*)>$", pathlib.Path(name).read_text(encoding="utf-8"), re.MULTILINE)


def with_includers(paths):
    """`paths`, and the sources in test/ that include the headers among them, by whatever way."""
    includers = {}
    for source in (ROOT / "test").rglob("*"):
        if source.suffix in (".cpp", ".h"):
            for header in INCLUDE.findall(source.read_text(encoding="utf-8")):
                includers.setdefault(header, []).append(str(source.relative_to(ROOT)))
    found = list(paths)
    for path in found:   # which grows
        found += [source for source in includers.get(path, []) if source not in found]
    return found


def built_from(targets, paths):
    """Ids of the targets that have one of the files at `paths`, which lie in test/, among their sources."""
    ends = tuple("/" + path for path in paths if path.startswith("test/"))
    return {target["id"] for target in targets for part in target["target_sources"]
            if any(os.path.normpath(source).endswith(ends) for source in sources_of(part))} if ends else set()


def chosen(tests, targets, paths):
    """Names of those of `tests` that hold the files at `paths`; tests and targets as `meson introspect` tells them."""
    programs = set().union(*(programs_of(path) for path in paths))
    built = built_from(targets, with_includers(paths))
    headers = any(path.endswith(".h") for path in paths)
    scripts = {pathlib.Path(path).name for path in paths if path.startswith("test/") and path.endswith(".py")}
    names = []
    for test in tests:
        name = test["name"]
        lint = any(suite.endswith("lint") for suite in test["suite"]) and (headers or name != "headers")
        program = name in programs or name.rstrip("0123456789").rstrip("_") in programs
        script = any(pathlib.Path(word).name in scripts for word in test["cmd"])
        if lint or program or script or built.intersection(test["depends"]):
            names.append(name)
    return names


def introspected(build, what):
    return json.loads("\n".join(lines_of("meson", "introspect", what, build)))


def main():
    build, revision = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    try:
        paths = changed(revision)
        print("\n".join(chosen(introspected(build, "--tests"), introspected(build, "--targets"), paths)))
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip().splitlines()
        print(f"tests_of_changes: {' '.join(error.cmd)} failed: {said[0] if said else error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
