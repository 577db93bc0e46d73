#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What only a machine with a GPU can show, in some minutes: the tests, how fast steps are, and PyTorch's steps
# beside them. Runs in a checkout that is built, and in a bundle (bundle.sh).
set -u

usage() {
  cat <<'TEXT'
usage: tools/gpu_check.sh [--output FILE.json] [--seconds N] [--build FOLDER]

Where lockstep finds a GPU, runs the tests of its devices, the benchmarks of steps and of the device, PyTorch's steps
where that is installed, training on GPUs, the tests under compute-sanitizer where that is installed, and the GPU's
tests that need none. Prints a table of what is demanded, what was measured, and whether that is met. Writes one JSON:
this table, each test's result, each figure, the device, the versions.
  --output FILE.json   (default gpu_check.json, here)
  --seconds N          the whole may take so long; what has no time left is left out (default 450)
  --build FOLDER       of the checkout (default build); a bundle has none

A demand that is missed is a line of the table and no failure: it depends on the GPU.
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

# All that is run, in this order: first what a GPU alone can show, and what is demanded of it.
train() { run bench "train_$1" "$2" "$lockstep" train --eval 0 --json "${@:3}"; }
step() { run bench "step_$1" "$2" "$(program bench_step)" --json "${@:3}"; }
report=$root/tools/gpu_report.py

ops=$(program test_ops) all_kinds=ConvolutionConformance.OfAllKinds
run test ops 100 "$ops" "--gtest_filter=-$all_kinds"
# The first run on a kind of GPU finds cuDNN's kernels for each shape, which may take minutes; they are kept, so a second
# check of the same machine has time for all.
step kernels_256 150 --model resnet50 --device cuda:0 --batch 256 --warm-up 2 --steps 4 --group 2 --layer-steps 0
step resnet50_256 110 --model resnet50 --device cuda:0 --batch 256 --warm-up 20 --steps 80
run bench torch 80 python3 "$root/bench/peers/torch_resnet50.py" --modes eager graphed
step resnet50_32 80 --model resnet50 --device cuda:0 --batch 32 --warm-up 20 --steps 220
step mnist_cnn_128 25 --model mnist_cnn --device cuda:0 --batch 128 --warm-up 200 --steps 2200 --group 100
run bench device 80 "$(program bench_device)" --device cuda:0 --json
# One replica before and after two: clocks change.
twin() { step "resnet50_128$1" "$2" --model resnet50 --devices "$3" --batch "$4" --warm-up 20 --steps 80 --layer-steps 0; }
twin '' 80 cuda:0 128
twin _twice 50 cuda:0,cuda:0 256
twin _again 30 cuda:0 128

# Two epochs of digits: as on the processor; and twice the same.
digits=(--model mnist_cnn --epochs 2)
train digits_2_replicas 40 "${digits[@]}" --devices cuda:0,cuda:0 --checkpoints "$work/first"
train digits_2_replicas_again 40 "${digits[@]}" --devices cuda:0,cuda:0 --checkpoints "$work/second"
run bench digits_same_bits 10 python3 "$report" --compare "$work/first" "$work/second"
train digits_processor 40 "${digits[@]}" --replicas 2

run test gpu_train 80 "$(program test_gpu_train)"
run test convolutions 100 "$ops" "--gtest_filter=$all_kinds" # cuDNN builds a kernel for each of some hundred shapes
run bench torch_compiled 120 python3 "$root/bench/peers/torch_resnet50.py" --modes compiled_graphed

sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
under() {
  run test "ops_under_$1" "$2" "$sanitizer" --tool "$1" --target-processes all --error-exitcode 1 \
    "$ops" "--gtest_filter=*Conformance.*-$all_kinds"
}
under memcheck 60
under synccheck 40

export LOCKSTEP_DRIVER_STUB=libcuda.so.1 LOCKSTEP_GPU_DESCRIPTION=$root/test/engine/cuda/h200.json
run test cuda_graphs 60 "$(program test_cuda_graphs)"

train digits 40 "${digits[@]}" --device cuda:0
# Two processes: on one GPU kernels reach the memory of both, or messages go through memory of the host; on two NCCL adds.
mpirun=$(program mpirun)
[ -x "$mpirun" ] || mpirun=$(command -v mpirun)
processes() {
  run bench "train_$1" 40 "$mpirun" --allow-run-as-root --oversubscribe --bind-to none -n 2 "$lockstep" train \
    --strategy collective_all_reduce --eval 0 --json "${digits[@]}" "${@:2}"
}
processes digits_2_processes --device cuda:0 --gpu-exchange ipc
processes digits_2_processes_by_host --device cuda:0 --gpu-exchange host
if [[ $doctor == *'"device cuda:1'* ]]; then processes digits_nccl --device cuda --algorithm nccl; fi
# What ranks on the GPUs cost each other, as it is measured here.
gpus=cuda:0,cuda:0
if [[ $doctor == *'"device cuda:1'* ]]; then gpus=cuda:0,cuda:1; fi
run bench plan_gpus 30 "$lockstep" plan --devices "$gpus" --fresh --json
train resnet20_float32 40 --model resnet20 --device cuda:0 --data random --batch 128 --steps 60 --dtype float32
train wide_deep_2048 40 --model wide_deep --device cuda:0 --data random --batch 2048 --steps 60
step on_processors 30 --model mnist_cnn --steps 40

run test cuda 60 "$(program test_cuda)" '--gtest_filter=-KernelNames.*' # these read the sources
for name in cuda_kernels cuda_ops gpu_models; do run test $name 60 "$(program test_$name)"; done

under racecheck 90 # the slowest

version=$(cat "$root/version" 2>/dev/null || git -C "$root" describe --always --dirty 2>/dev/null)
python3 "$report" "$work" "$work/json" "$version" "$SECONDS" || exit 1
if ! cp "$work/json" "$output.part" || ! mv "$output.part" "$output"; then fail "$output could not be written"; fi
say "$output"
[ ! -s "$work/failed" ] || fail "failed: $(cat "$work/failed")"
