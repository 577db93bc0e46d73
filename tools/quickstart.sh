#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# From a bare machine to a trained network: installs what is missing, builds the program, and trains a small
# convolutional network on generated digits, in two processes.
set -u

usage() {
  cat <<'TEXT'
usage: tools/quickstart.sh [-DOPTION=VALUE...]

Installs what is missing (tools/setup.sh --minimal), builds `build/tools/lockstep`, and trains mnist_cnn on
digits that the program draws: mpirun with two processes. A second run installs and
builds nothing.
  -DOPTION=VALUE   an option of the build (meson_options.txt). Kernels for GPUs are compiled where there is
                   a GPU of NVIDIA, or with -Dcuda=enabled

exit code: 0 trained to the accuracy that was to be reached, 1 not, 2 bad option
TEXT
}

accuracy_to_reach=0.98

options=()
for argument in "$@"; do
  case $argument in
    -D*=*) options+=("$argument") ;;
    -h | --help) usage; exit 0 ;;
    *) echo "quickstart: unknown option '$argument'; known: -DOPTION=VALUE, --help" >&2; exit 2 ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null
. tools/build_folder.sh
say() { echo "quickstart: $*"; }
fail() { echo "quickstart: $*" >&2; exit 1; }

tools/setup.sh --minimal || exit 1

if [ ! -e build/build.ninja ]; then
  say "configuring the build"
  gpus=-Dcuda=disabled
  if [ -e /proc/driver/nvidia/version ] || [ -e /dev/dxg ]; then gpus=-Dcuda=auto; fi # Linux, and Linux under Windows
  configure build --buildtype=release "${unity[@]}" "$gpus" "${options[@]}" || fail "the build cannot be configured"
elif [ ${#options[@]} -gt 0 ]; then
  configure build "${options[@]}" || fail "the build cannot be configured"
fi
if [ ! -x build/tools/lockstep ]; then say "building: two to four minutes on two cores"; fi
compile_aloud build tools/lockstep || fail "the build failed"

# More processes than cores is an ordinary case here, and processes are not bound, since replicas are threads.
# Single-copy transfers between processes are forbidden in many containers; lockstep needs none of Open MPI's.
command=(mpirun --oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none -n 2)
if [ "$(id -u)" -eq 0 ]; then command+=(--allow-run-as-root); fi
command+=(build/tools/lockstep train --model mnist_cnn --epochs 4 --batch 64 --json)
say "${command[*]}"

# In the background, since a trap waits for a program in front of it: a signal ends the training too.
result=$(mktemp) || exit 1
job=''
trap 'rm -f "$result"; [ -z "$job" ] || kill "$job"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"${command[@]}" >"$result" &
job=$!
wait "$job"
code=$?
job=''
[ "$code" -eq 0 ] || fail "training ended with exit code $code"

python3 - "$accuracy_to_reach" "$result" <<'PYTHON'
import json
import sys

needed = float(sys.argv[1])
with open(sys.argv[2], encoding="utf-8") as lines:
    result = json.loads(lines.read().splitlines()[-1])
accuracy = result["test_accuracy"]
print(f"quickstart: {result['replicas']} replicas, {result['steps']} steps, {result['seconds']:.1f} s, "
      f"{result['examples_per_second']:.0f} images a second")
print(f"quickstart: {result['reason']}")
verdict = "passed" if accuracy >= needed else "failed"
print(f"quickstart: {verdict}: test accuracy {accuracy:.4f}, at least {needed} is needed")
sys.exit(0 if accuracy >= needed else 1)
PYTHON
reached=$?

if [ "$reached" -eq 0 ]; then
  cat <<'TEXT'

What to type next:
  build/tools/lockstep doctor          what lockstep finds on this machine, and what is missing
  build/tools/lockstep train --help    your model, data and devices
  build/tools/lockstep bench --ranks 2 how fast all-reduce is here
TEXT
fi
exit "$reached"
