#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# lockstep and PyTorch must see the same network in the same weights.
set -eu

usage() {
  cat <<'TEXT'
usage: test/parity/parity.sh [--build DIR] [--venv DIR] [--data DIR] [--models M,M,...] [--kernels K,K]

Two comparisons. Steps: from the same weights, on the same batches, losses and gradients of training steps of
each model (steps.py says how near they must be). Logits: trains mnist_cnn for some steps with two replicas,
computes the logits of the test images with `lockstep predict` and with PyTorch from the checkpoint's safetensors
files, and compares them to 1e-5 of the largest.

  --build DIR   folder of lockstep's build (build): tools/lockstep and test/parity/parity_steps
  --venv DIR    folder of a Python environment (build/parity-venv). What it lacks of torch, numpy and
                safetensors is installed there from PyPI, some GB: hence none of the automatic tests
  --data DIR    IDX files of 28x28 images, for the logits (random ones)
  --models M    whose steps are compared, of mnist_cnn, resnet20, resnet50 (all)
  --kernels K   of direct, auto (both)
TEXT
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$here/../../build venv= data= rest=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --build | --venv | --data | --models | --kernels)
      [ $# -ge 2 ] || { echo "parity: $1 needs a value" >&2; exit 2; }
      case $1 in
        --build) build=$2 ;;
        --venv) venv=$2 ;;
        --data) data=$2 ;;
        *) rest+=("$1" "$2") ;;
      esac
      shift 2 ;;
    *) echo "parity: unknown option '$1'; --help says which there are" >&2; exit 2 ;;
  esac
done
venv=${venv:-$build/parity-venv}
lockstep=$build/tools/lockstep steps=$build/test/parity/parity_steps
for program in "$lockstep" "$steps"; do
  [ -x "$program" ] || { echo "parity: no $program: build it first (ninja -C build)" >&2; exit 2; }
done
if ! "$venv/bin/python" -c 'import torch, numpy, safetensors' 2>/dev/null; then
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch numpy safetensors
fi
"$venv/bin/python" "$here/steps.py" "$steps" ${rest[@]+"${rest[@]}"}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$data" ]; then
  data=$work/data
  "$venv/bin/python" "$here/random_idx.py" "$data"
fi
images=$(ls "$data"/t10k-images-idx3-ubyte* | head -n 1)
"$lockstep" train --model mnist_cnn --data "$data" --strategy mirrored --replicas 2 --batch 32 --steps 20 \
  --checkpoints "$work/runs" >"$work/train.log" 2>&1 || { cat "$work/train.log"; exit 1; }
"$lockstep" predict --checkpoints "$work/runs" --data "$data" --logits >"$work/ours.csv"
"$venv/bin/python" "$here/logits.py" "$work/runs" "$images" >"$work/theirs.csv"
"$venv/bin/python" "$here/compare.py" "$work/ours.csv" "$work/theirs.csv" 1e-5
