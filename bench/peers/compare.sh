#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Measures lockstep, PyTorch and TensorFlow in turn, on the same pinned cores, and prints ratios of medians.
set -eu

usage() {
  cat <<'TEXT'
usage: bench/peers/compare.sh [--venv DIR] [--quick] [--ours] [--build DIR] [--out DIR] [--models M,M,...]
                              [--dtypes D,D] [--rounds N]

Needs a release build of lockstep. Where DIR of --venv has no PyTorch and TensorFlow they are installed there
from PyPI: some GB, some minutes.
  --venv DIR    folder of a Python environment (build/peers-venv)
  --build DIR   folder of lockstep's build (build)
  --out DIR     where compare.json and compare.svg go (build/peers; with --ours build/shares)
  --models M    of mnist_cnn, mlp, mlp_wide, resnet50 (all)
  --dtypes D    of float32, bfloat16 (both; bfloat16 only with the models of convolutions)
  --rounds N    lockstep, then each peer, so often in turn (5)
  --ours        no peers: only two coupled processes or replicas against two uncoupled ones
  --quick       two rounds of a second, and the peers' settings as their scripts have them, untried

About an hour without --quick, of which resnet50 takes half, and 12 minutes with it. Keep other work off the machine.
TEXT
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
venv= build=$root/build peers=yes rest=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --quick) rest+=("$1"); shift ;;
    --ours) peers=no; shift ;;
    --venv | --build | --out | --models | --dtypes | --rounds)
      [ $# -ge 2 ] || { echo "compare: $1 needs a value" >&2; exit 2; }
      case $1 in
        --venv) venv=$2 ;;
        --build) build=$2 ;;
        *) rest+=("$1" "$2") ;;
      esac
      shift 2 ;;
    *) echo "compare: unknown option '$1'; --help says which there are" >&2; exit 2 ;;
  esac
done
venv=${venv:-$build/peers-venv}
[ -x "$build/bench/bench_step" ] || {
  echo "compare: no $build/bench/bench_step: build first (meson setup build --buildtype=release; ninja -C build)" >&2
  exit 2
}
if [ "$peers" = yes ]; then
  found='import importlib.util as u; raise SystemExit(not (u.find_spec("torch") and u.find_spec("tensorflow")))'
  if ! "$venv/bin/python" -c "$found" 2>/dev/null; then
    echo "compare: installing PyTorch and TensorFlow into $venv" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q torch tensorflow-cpu
  fi
  rest+=(--python "$venv/bin/python")
fi
exec python3 "$here/compare.py" --build "$build" ${rest[@]+"${rest[@]}"}
