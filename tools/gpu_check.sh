#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What only a machine with a GPU can show, in some minutes: the tests, how fast steps are, and PyTorch's steps
# beside them. Runs in a checkout that is built, and in a bundle (bundle.sh).
set -u

usage() {
  cat <<'TEXT'
usage: tools/gpu_check.sh [--output FILE.json] [--seconds N] [--build FOLDER]

Where lockstep finds a GPU, runs the tests of its devices, training on GPUs and the step benchmarks, the tests under
compute-sanitizer where that is installed, PyTorch's steps where that is installed, and the GPU's tests that need
none. Writes one JSON: each test's result, each figure, the device, the versions.
  --output FILE.json   (default gpu_check.json, here)
  --seconds N          the whole may take so long; what has no time left is left out (default 450)
  --build FOLDER       of the checkout (default build); a bundle has none

exit code: 0 nothing failed, 1 something failed or took too long, 2 bad option, 77 skipped: no GPU, as one line says
TEXT
}

say() { echo "gpu_check: $*"; }
fail() { echo "gpu_check: $*" >&2; exit 1; }
refuse() { echo "gpu_check: $*" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
output=gpu_check.json seconds=450 build=$root/build
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --output | --seconds | --build) [ -n "${2-}" ] || refuse "$1 wants a value (--help says more)" ;;&
    --output) output=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    *) refuse "unknown option '$1'; known: --output, --seconds, --build, --help" ;;
  esac
done
[[ $seconds =~ ^[1-9][0-9]{0,4}$ ]] || refuse "--seconds is 1 to 99999, not '$seconds'"

# The path of a program, here; where it is not, of where it would be.
program() {
  local found=$root/bin/$1
  if [ ! -e "$root/glibc_needed" ]; then
    found=$(find "$build/tools" "$build/test" "$build/bench" -type f -perm -u+x -name "$1" 2>/dev/null | head -n 1)
  fi
  echo "${found:-$build/$1}"
}

lockstep=$(program lockstep)
[ -x "$lockstep" ] || fail "there is no program lockstep: build it, or say --build FOLDER"
doctor=$("$lockstep" doctor --json) || fail "lockstep doctor ended with an error"
if [[ $doctor != *'"device cuda:'* ]]; then
  reason=$(sed -n 's/.*"CUDA":{"found":false,"text":"\([^"]*\)".*/\1/p' <<<"$doctor")
  say "skipped, lockstep finds no GPU: ${reason:-this lockstep was built without CUDA}"
  exit 77
fi
command -v python3 >/dev/null || fail "no python3, which writes the JSON"
if [ -d "$output" ] || [ ! -w "$(dirname "$output")" ]; then fail "$output cannot be written"; fi

work=$(mktemp -d) || exit 1
job=''
trap 'rm -rf "$work" "$output.part"; [ -z "$job" ] || kill "$job"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
printf '%s' "$doctor" >"$work/doctor"

# note NAME KIND CODE SECONDS COMMAND: one thing that was run, for the JSON.
note() { printf '%s\t' "$@" >>"$work/runs" && echo >>"$work/runs"; }

# run KIND NAME LIMIT COMMAND...: KIND is `test`, of GoogleTest, or `bench`, which prints JSON; LIMIT are seconds. In
# the background, since a trap waits for a program in front of it.
run() {
  local kind=$1 name=$2 limit=$3 left=$((seconds - SECONDS)) began=$SECONDS code
  shift 3
  : >"$work/$name.out" && : >"$work/$name.err"
  if [ -z "$1" ]; then note "$name" "$kind" absent 0 ''; return; fi
  if [ ! -x "$1" ] && ! command -v "$1" >/dev/null; then note "$name" "$kind" unbuilt 0 "$*"; return; fi
  if [ "$left" -lt 1 ]; then note "$name" "$kind" late 0 "$*"; return; fi
  timeout -k 5 "$((limit < left ? limit : left))" "$@" >"$work/$name.out" 2>"$work/$name.err" &
  job=$!
  wait "$job" 2>/dev/null # bash would say that it was killed
  code=$?
  job=''
  note "$name" "$kind" "$code" "$((SECONDS - began))" "$*"
  say "$name: exit code $code, $((SECONDS - began)) s"
}

# All that is run, in this order: first what a GPU alone can show.
train() { run bench "train_$1" 60 "$lockstep" train --eval 0 --json "${@:2}"; }

run test ops 150 "$(program test_ops)"
run test gpu_train 90 "$(program test_gpu_train)"
export LOCKSTEP_DRIVER_STUB=libcuda.so.1 LOCKSTEP_GPU_DESCRIPTION=$root/test/engine/cuda/h200.json
run test cuda_graphs 60 "$(program test_cuda_graphs)"

train digits --model mnist_cnn --device cuda:0 --epochs 2
train digits_2_replicas --model mnist_cnn --devices cuda:0,cuda:0 --epochs 2
train mnist_cnn_128 --model mnist_cnn --device cuda:0 --data random --batch 128 --steps 500
train resnet50_32 --model resnet50 --device cuda:0 --data random --batch 32 --steps 60
train resnet50_256 --model resnet50 --device cuda:0 --data random --batch 256 --steps 40
train resnet20_float32 --model resnet20 --device cuda:0 --data random --batch 128 --steps 60 --dtype float32
train wide_deep_2048 --model wide_deep --device cuda:0 --data random --batch 2048 --steps 60
# Two processes: on one GPU messages go through memory of the host, on two NCCL adds.
mpirun=$(program mpirun)
[ -x "$mpirun" ] || mpirun=$(command -v mpirun)
processes() {
  run bench "train_$1" 60 "$mpirun" --allow-run-as-root --oversubscribe --bind-to none -n 2 "$lockstep" train \
    --strategy collective_all_reduce --model mnist_cnn --eval 0 --json "${@:2}"
}
processes digits_2_processes --device cuda:0 --epochs 2
if [[ $doctor == *'"device cuda:1'* ]]; then processes digits_nccl --device cuda --algorithm nccl --epochs 2; fi

# What ranks on the GPUs cost each other, as it is measured here.
gpus=cuda:0,cuda:0
if [[ $doctor == *'"device cuda:1'* ]]; then gpus=cuda:0,cuda:1; fi
run bench plan_gpus 30 "$lockstep" plan --devices "$gpus" --fresh --json

run bench step_on_processors 30 "$(program bench_step)" --model mnist_cnn --steps 40 --json

sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
ops=$(program test_ops)
run test ops_under_memcheck 90 "$sanitizer" --tool memcheck --target-processes all --error-exitcode 1 \
  "$ops" '--gtest_filter=Conformance.*'

run bench torch 80 python3 "$root/bench/peers/torch_resnet50.py" --modes eager graphed
run bench torch_compiled 120 python3 "$root/bench/peers/torch_resnet50.py" --modes compiled_graphed

run test cuda 60 "$(program test_cuda)" '--gtest_filter=-KernelNames.*' # these read the sources
for name in cuda_kernels cuda_ops gpu_models; do run test $name 60 "$(program test_$name)"; done

version=$(cat "$root/version" 2>/dev/null || git -C "$root" describe --always --dirty 2>/dev/null)
python3 - "$work" "$work/json" "$version" <<'PYTHON' || exit 1
import datetime
import json
import pathlib
import platform
import re
import sys

work = pathlib.Path(sys.argv[1])
RESULTS = {"0": "passed", "77": "skipped", "124": "timed out", "137": "timed out",
           "absent": "skipped: not installed", "unbuilt": "failed: not built", "late": "skipped: no time left"}


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


def objects_of(text):
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            pass   # words for people
    return {"figures": [value for value in found if isinstance(value, dict)]}


runs = {"test": {}, "bench": {}}
failed = []
count = {"passed": 0, "failed": 0, "skipped": 0}
for line in (work / "runs").read_text().splitlines():
    name, kind, code, seconds, command = line.split("\t")[:5]
    out, err = ((work / f"{name}.{end}").read_text(errors="replace") for end in ("out", "err"))
    result = RESULTS.get(code, "failed")
    run = {"command": command, "result": result, "exit_code": int(code) if code.isdigit() else None,
           "seconds": int(seconds)}
    run |= cases_of(out) if kind == "test" else objects_of(out)
    if result != "passed":
        run["last_words"] = (out + err).splitlines()[-20:]
    runs[kind][name] = run
    short = result.partition(":")[0]
    count[short if short in count else "failed"] += 1
    if short not in ("passed", "skipped"):
        failed.append(f"{name} ({result})")
doctor = json.loads((work / "doctor").read_text())
whole = {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "version": sys.argv[3],
         "devices": {name.partition(" ")[2]: part["text"] for name, part in doctor.items()
                     if name.startswith("device ")},
         "kernel": platform.release(), "glibc": platform.libc_ver()[1], "python": platform.python_version(),
         "doctor": doctor, "tests": runs["test"], "benches": runs["bench"]}
pathlib.Path(sys.argv[2]).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
(work / "failed").write_text(", ".join(failed), encoding="utf-8")
print("gpu_check: " + ", ".join(f"{number} {what}" for what, number in count.items()))
PYTHON
if ! cp "$work/json" "$output.part" || ! mv "$output.part" "$output"; then fail "$output could not be written"; fi
say "$output"
[ ! -s "$work/failed" ] || fail "failed: $(cat "$work/failed")"
