#!/bin/sh
# SPDX-License-Identifier: MIT
# lockstep and PyTorch must see the same network in the same checkpoint: trains mnist_cnn for some steps
# with two replicas, computes the logits of the test images with `lockstep predict` and with PyTorch from
# the checkpoint's safetensors files, and compares them to 1e-5 of the largest.
#
#   test/parity/parity.sh LOCKSTEP [DATA [VENV]]
#
# LOCKSTEP is the program (build/tools/lockstep), DATA a folder of IDX files of 28x28 images (without it:
# random ones), VENV the folder of a Python environment (build/parity-venv). Where VENV is not there it
# is made, and torch, numpy and safetensors are installed into it from PyPI: some GB, some minutes. Not
# one of the automatic tests for this reason.
set -eu
lockstep=${1:?the lockstep program, for instance build/tools/lockstep}
here=$(cd "$(dirname "$0")" && pwd)
data=${2:-}
venv=${3:-$here/../../build/parity-venv}
if ! "$venv/bin/python" -c 'import torch, numpy, safetensors' 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch numpy safetensors
fi
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
