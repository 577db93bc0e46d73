#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What only a machine with a GPU can show, in some minutes: the tests, how fast steps are, and PyTorch's steps
# beside them. Runs in a checkout that is built, and in a bundle (bundle.sh).
set -u

usage() {
  cat <<'TEXT'
usage: tools/gpu_check.sh [--only correctness|speed] [--output FILE.json] [--seconds N] [--jobs N] [--cache FOLDER]
                          [--build FOLDER]

Where lockstep finds a GPU, runs two parts. Correctness: the tests of its devices and of training, training on digits
in all strategies, and the tests under compute-sanitizer where that is installed. Speed: the benchmarks of steps and of
the device, and PyTorch's steps where that is installed. Prints what failed, and a table of what is demanded, what was
measured, and whether that is met. Writes one JSON: this table, each test's result, each figure, the device, the
versions.
  --only PART          correctness or speed alone
  --output FILE.json   (default gpu_check.json, here)
  --seconds N          the whole takes at most so long; what has no time left is left out (default 400 for
                       correctness, 540 for speed, 940 for both)
  --jobs N             tests that run side by side (default: half of the processors, 8 at most)
  --cache FOLDER       where lockstep keeps the kernels and costs that it has found, instead of ~/.cache: the next
                       check of the same kind of GPU starts with them
  --build FOLDER       of the checkout (default build); a bundle has none

A demand that is missed is a line of the table and no failure: it depends on the GPU.
exit code: 0 nothing failed, 1 something failed or took too long, 2 bad option, 77 skipped: no GPU, as one line says
TEXT
}

say() { echo "gpu_check: $*"; }
fail() { echo "gpu_check: $*" >&2; exit 1; }
refuse() { echo "gpu_check: $*" >&2; exit 2; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
output=gpu_check.json build=$root/build only='' seconds='' jobs='' cache=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --only | --output | --seconds | --jobs | --cache | --build)
      [ -n "${2-}" ] || refuse "$1 wants a value (--help says more)" ;;&
    --only) only=$2; shift 2 ;;
    --output) output=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --jobs) jobs=$2; shift 2 ;;
    --cache) cache=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    *) refuse "unknown option '$1'; known: --only, --output, --seconds, --jobs, --cache, --build, --help" ;;
  esac
done
case $only in
  '') most=940 ;;
  correctness) most=400 ;;
  speed) most=540 ;;
  *) refuse "--only is correctness or speed, not '$only'" ;;
esac
seconds=${seconds:-$most}
[[ $seconds =~ ^[1-9][0-9]{0,4}$ ]] || refuse "--seconds is 1 to 99999, not '$seconds'"
if [ -z "$jobs" ]; then
  jobs=$(($(nproc) / 2))
  jobs=$((jobs < 1 ? 1 : jobs > 8 ? 8 : jobs))
fi
[[ $jobs =~ ^[1-9][0-9]?$ ]] || refuse "--jobs is 1 to 99, not '$jobs'"
if [ -n "$cache" ]; then
  mkdir -p "$cache" && cache=$(cd "$cache" && pwd) || fail "$cache cannot be made"
  export XDG_CACHE_HOME=$cache
fi

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
  reason=$(sed -n 's/.*"\(CUDA\|GPUs\)":{"found":false,"text":"\([^"]*\)".*/\2/p' <<<"$doctor")
  say "skipped, lockstep finds no GPU: ${reason:-this lockstep was built without CUDA}"
  exit 77
fi
command -v python3 >/dev/null || fail "no python3, which writes the JSON"
if [ -d "$output" ] || [ ! -w "$(dirname "$output")" ]; then fail "$output cannot be written"; fi

work=$(mktemp -d) || exit 1
job=''
end_all() {
  local running
  running=$(jobs -p)
  # shellcheck disable=SC2086 # several numbers
  if [ -n "$running" ]; then
    kill $running 2>/dev/null
    wait
  fi
  rm -rf "$work" "$output.part"
}
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
printf '%s' "$doctor" >"$work/doctor"

# note NAME KIND CODE SECONDS COMMAND: one thing that was run, for the JSON.
note() { printf '%s\t%s\t%s\t%s\t%s\n' "$@" >>"$work/runs"; } # one write: others write, too

# run KIND NAME LIMIT COMMAND...: KIND is `test`, of GoogleTest, or `bench`, which prints JSON; LIMIT are seconds. In
# the background, since a trap waits for a program in front of it.
run() {
  local kind=$1 name=$2 limit=$3 left=$((deadline - SECONDS)) began=$SECONDS code
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

# beside COMMAND...: beside the others, as soon as fewer than --jobs run. For what need not be timed.
beside() {
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
  {
    trap 'kill "$job" 2>/dev/null; exit 143' TERM
    "$@"
  } &
}

# shards COUNT NAME LIMIT COMMAND...: a program's tests in so many processes beside each other.
shards() {
  local count=$1 name=$2 index
  shift 2
  for ((index = 0; index < count; ++index)); do
    GTEST_TOTAL_SHARDS=$count GTEST_SHARD_INDEX=$index beside run test "$name.${index}of$count" "$@"
  done
}

train() { run bench "train_$1" "$2" "$lockstep" train --eval 0 --json "${@:3}"; }
step() { run bench "step_$1" "$2" "$(program bench_step)" --json "${@:3}"; }
torch() { run bench "$1" "$2" python3 "$root/bench/peers/torch_resnet50.py" "${@:3}"; }
report=$root/tools/gpu_report.py
ops=$(program test_ops)
constant=(--model mnist_cnn --schedule constant) # the schedule of a run that is resumed knows no end
digits=("${constant[@]}" --epochs 2)

# Two epochs of digits on two replicas: twice the same, and in two runs of one epoch each.
digits_on_replicas() {
  pair() { train "$1" 60 "${constant[@]}" --devices cuda:0,cuda:0 --checkpoints "$work/$2" --epochs "$3"; }
  pair digits_2_replicas first 2
  pair digits_2_replicas_again second 2
  run bench digits_same_bits 10 python3 "$report" --compare "$work/first" "$work/second"
  pair digits_one_epoch third 1
  pair digits_resumed third 2
  run bench digits_resumed_bits 10 python3 "$report" --compare "$work/first" "$work/third"
}

# Two processes: on one GPU kernels reach the memory of both, or messages go through memory of the host.
digits_in_processes() {
  local mpirun
  mpirun=$(program mpirun)
  [ -x "$mpirun" ] || mpirun=$(command -v mpirun)
  processes() {
    run bench "train_$1" 60 "$mpirun" --allow-run-as-root --oversubscribe --bind-to none -n 2 "$lockstep" train \
      --strategy collective_all_reduce --eval 0 --json "${digits[@]}" "${@:2}"
  }
  processes digits_2_processes --device cuda:0 --gpu-exchange ipc
  processes digits_2_processes_by_host --device cuda:0 --gpu-exchange host
  if [[ $doctor == *'"device cuda:1'* ]]; then processes digits_nccl --device cuda --algorithm nccl; fi
}

digits_otherwise() {
  train digits 60 "${digits[@]}" --device cuda:0
  train digits_queued 60 "${digits[@]}" --device cuda:0 --graphs off
  train digits_servers 60 "${digits[@]}" --strategy parameter_server --servers 1 --devices cuda:0,cuda:0 --sync
  train wide_deep_2048 60 --model wide_deep --dtype float32 --device cuda:0 --data random --batch 2048 --steps 60
}

# What a GPU alone can show of numbers and orders, the most important first.
correctness() {
  shards 8 ops 200 "$ops"
  beside run test gpu_train 150 "$(program test_gpu_train)"
  beside digits_on_replicas
  beside digits_in_processes
  beside train digits_processor 60 "${digits[@]}" --device cpu --replicas 2
  beside digits_otherwise
  local sanitizer tool
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer)
  for tool in memcheck synccheck racecheck; do
    shards 8 "ops_under_$tool" 250 "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 1 \
      "$ops" '--gtest_filter=Conformance.*:*OfFewChannels*'
  done
  # What ranks on the GPUs cost each other, as it is measured here.
  local gpus=cuda:0,cuda:0
  if [[ $doctor == *'"device cuda:1'* ]]; then gpus=cuda:0,cuda:1; fi
  beside run bench plan_gpus 30 "$lockstep" plan --devices "$gpus" --fresh --json
  beside train resnet20_float32 60 --model resnet20 --device cuda:0 --data random --batch 128 --steps 60 --dtype float32
  LOCKSTEP_DRIVER_STUB=libcuda.so.1 LOCKSTEP_GPU_DESCRIPTION=$root/test/engine/cuda/h200.json \
    beside run test cuda_graphs 100 "$(program test_cuda_graphs)"
  wait
}

# Speeds, one after the other.
speed() {
  # The first run on a kind of GPU finds cuDNN's kernels for each shape, some seconds; they are kept.
  step kernels_256 150 --model resnet50 --device cuda:0 --batch 256 --warm-up 2 --steps 4 --group 2 --layer-steps 0
  step resnet50_256 90 --model resnet50 --device cuda:0 --batch 256 --warm-up 20 --steps 80
  torch torch 80 --modes eager graphed
  step resnet50_32 80 --model resnet50 --device cuda:0 --batch 32 --warm-up 20 --steps 220
  step mnist_cnn_128 25 --model mnist_cnn --device cuda:0 --batch 128 --warm-up 200 --steps 2200 --group 100
  local dtype ranks
  for dtype in bfloat16 float32; do
    for ranks in 2 4 8; do
      run bench "all_reduce_${ranks}_$dtype" 25 "$lockstep" bench --device cuda:0 --ranks "$ranks" --dtype "$dtype" \
        --min 64MiB --max 64MiB --algorithm direct --assumed --json
    done
  done
  run bench device 60 "$(program bench_device)" --device cuda:0 --json
  if [[ $doctor == *'"device cuda:1'* ]]; then
    run bench all_reduce_gpus 60 "$lockstep" bench --device cuda --min 64KiB --factor 16 --algorithm all --json
  fi
  # One replica before and after two: clocks change.
  twin() { step "resnet50_128$1" "$2" --model resnet50 --devices "$3" --batch "$4" --warm-up 20 --steps 80 --layer-steps 0; }
  twin '' 80 cuda:0 128
  twin _twice 50 cuda:0,cuda:0 256
  twin _again 30 cuda:0 128
  torch torch_compiled 150 --modes compiled_graphed
  step on_processors 30 --model mnist_cnn --steps 40
}

# Each part has its share of the seconds.
deadline=$seconds
if [ -z "$only" ]; then deadline=$((seconds * 400 / 940)); fi
if [ "$only" != speed ]; then correctness; fi
deadline=$seconds
if [ "$only" != correctness ]; then speed; fi

version=$(cat "$root/version" 2>/dev/null || git -C "$root" describe --always --dirty 2>/dev/null)
python3 "$report" "$work" "$work/json" "$version" "$SECONDS" "$seconds" || exit 1
if ! cp "$work/json" "$output.part" || ! mv "$output.part" "$output"; then fail "$output could not be written"; fi
say "$output"
[ ! -s "$work/failed" ] || fail "failed: $(cat "$work/failed")"
