#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Everything that must hold before a change is good: builds with warnings as errors, runs all tests, and
# runs those of parsers, the executor and shared memory once more under sanitizers. The last line says how
# many passed, failed and were skipped; before it stand each skip with its reason and each failure with its log.
set -u

usage() {
  cat <<'TEXT'
usage: tools/check.sh [--sanitize | --changed [REVISION] | --field]

Installs what is missing (tools/setup.sh), builds `build` with warnings as errors and runs all tests there,
then runs the tests of parsers, the executor and shared memory in `build-sanitize` under the address and
undefined-behavior sanitizers.
  --sanitize              runs all unit tests there, and in `build-tsan` most with threads under the
                          thread sanitizer
  --changed [REVISION]    builds, and runs the tests of the folders in which files differ from REVISION
                          (default: the last commit, or the one before where nothing differs), and the lints
  --field                 builds, and starts jobs under the launchers of others: Slurm, MPICH, torchrun, which it
                          installs, and installs packages in bare roots (as root; some GB in
                          build/field; up to an hour)

exit code: 0 everything passed or was skipped with a reason, 1 something failed, 2 bad option
TEXT
}

mode=plain
revision=''
case ${1:-} in
  '') ;;
  --sanitize) mode=sanitize && shift ;;
  --changed)
    mode=changed && shift
    if [ $# -gt 0 ]; then revision=$1 && shift; fi
    ;;
  --field) mode=field && shift ;;
  -h | --help) usage; exit 0 ;;
esac
if [ $# -gt 0 ]; then
  echo "check: unknown option '$1'; known: --sanitize, --changed [REVISION], --field, --help" >&2
  exit 2
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null
. tools/build_folder.sh

failures=()
folders=()
runner=()
test_arguments=()
compiler_arguments=(-g1 -fno-sanitize-recover=all)
optimization=1
say() { printf 'check: %s (after %d:%02d)\n' "$*" $((SECONDS / 60)) $((SECONDS % 60)); }
failed() { failures+=(--failed "$1"); }

# Two tests more than processors: many wait for others, or for a deadline, a third of their time.
side_by_side=$(($(nproc) + 2))

# The tests of one build folder: $1, the rest are arguments of `meson test`. The reports of an earlier
# run are removed: a program that crashes would leave the old one.
run_tests() {
  local folder=$1
  shift
  rm -f "$folder"/*.xml "$folder"/meson-logs/testlog.*
  # In the background of a shell SIGINT is ignored, and tests of signals would inherit that.
  env --default-signal "${runner[@]}" meson test -C "$folder" --num-processes "$side_by_side" --print-errorlogs "$@"
  folders+=("$folder")
}

# Unit tests under sanitizers: $1 is the folder, $2 which, $3 the suite, the rest further options of the build.
# Lean: only these programs are built, hardly optimized, with lines as all that a debugger gets (a full
# description of types takes a third of the time), and end at their first finding (to go on takes code).
run_sanitized() {
  local folder=$1 which=$2 suite=$3
  shift 3
  say "suite $suite under the sanitizers $which"
  if configure "$folder" "${unity[@]}" -Ddebug=false -Dcpp_args="${compiler_arguments[*]}" -Doptimization="$optimization" \
    -Db_lundef=false -Dwerror=false -Db_sanitize="$which" "$@"; then
    run_tests "$folder" --suite "$suite" --timeout-multiplier 5 "${test_arguments[@]}"
  else
    failed "$folder: cannot be configured (log: $folder/meson-logs/meson-log.txt)"
  fi
}

finish() {
  say "the count"
  python3 tools/count_tests.py "${failures[@]}" "${folders[@]}"
  exit $?
}

if ! tools/setup.sh; then
  echo "FAILED   tools/setup.sh: packages are missing"
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi

# gold links in a quarter of the time of the default linker.
if ld.gold --version >/dev/null 2>&1; then export CXX_LD=gold; fi

say "build"
# A developer's build keeps its small units.
if [ -e build/build.ninja ]; then unity_of_build=(); else unity_of_build=("${unity[@]}"); fi
if ! configure build --buildtype=release "${unity_of_build[@]}" -Dwerror=true -Dcuda=auto; then
  failed "build: cannot be configured (log: build/meson-logs/meson-log.txt)"
  finish
fi
if ! compile build -k 0; then # all errors at once
  failed "build: does not compile"
  finish
fi

# Replicas of several OpenMP threads share few cores with other tests: they must not spin.
export OMP_WAIT_POLICY=passive

if [ "$mode" = field ]; then
  say "launchers of others"
  mkdir -p build/field
  test/tools/field/prepare.sh build/field || exit 1
  passed=0
  for test in "slurm_test.py build/tools/lockstep" "launchers_test.py build/tools/lockstep build/field" "package_test.py . build/field"; do
    # shellcheck disable=SC2086 # words
    if env --default-signal python3 test/tools/field/$test; then passed=$((passed + 1)); else failed "${test%% *}"; fi
  done
  say "$passed programs passed, $((${#failures[@]} / 2)) failed"
  exit $((${#failures[@]} > 0))
fi
if [ "$mode" = changed ]; then
  if ! changes=$(tools/tests_of_changes.py build "$revision"); then
    failed "it is not known what has changed"
    finish
  fi
  mapfile -t names <<<"$changes"
  say "tests: ${names[*]}"
  run_tests build --no-rebuild --timeout-multiplier 2 "${names[@]}"
  finish
fi
say "tests"
run_tests build --no-rebuild --timeout-multiplier 2

# Sanitizers stop at their first finding; without halt_on_error a finding would be text in a log.
export ASAN_OPTIONS=halt_on_error=1:abort_on_error=1
export LSAN_OPTIONS="suppressions='$PWD/test/leak_sanitizer.txt':print_suppressions=0"
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
# A filter that is given here replaces the one by which a program leaves out its slow tests, so it names them, too.
slow=$(meson introspect --tests build | python3 -c '
import json, sys
words = [word for test in json.load(sys.stdin) if "lockstep:slow" in test["suite"] for word in test["cmd"]]
print(":".join(word.partition("=")[2] for word in words if word.startswith("--gtest_filter=")))')
if [ "$mode" = plain ]; then
  # Sums on more layouts, and two tests that count roundings, execute what other tests execute, too. No program needs
  # kernels for GPUs, or for more than one kind of processor (engine/cpu/meson.build).
  compiler_arguments+=(-DHWY_COMPILE_ONLY_STATIC -fno-sanitize=null) # the address sanitizer finds null pointers, too
  optimization=0
  left_out='*Layouts*:WireTypes.MakeErrorsOf*:WireTypes.LetNaNAnd*'
  test_arguments=(--test-args="--gtest_filter=-$left_out:$slow")
  ASAN_OPTIONS+=:detect_stack_use_after_return=0 # without optimization this search takes ten times as long
  run_sanitized build-sanitize address,undefined sanitized -Dcuda=disabled
  finish
fi
ASAN_OPTIONS+=:detect_stack_use_after_return=1
run_sanitized build-sanitize address,undefined unit -Dcuda=auto

# The synchronisation inside of libgomp and oneDNN is invisible to the thread sanitizer, hence one
# OpenMP thread and suppressions; and gcc 12's runtime cannot live with the wide address
# randomisation of newer kernels.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 OMP_NUM_THREADS=1
TSAN_OPTIONS+=":suppressions='$PWD/test/thread_sanitizer.txt'"
if setarch -R true 2>/dev/null; then
  runner=(setarch -R)
fi
# gRPC is not built with it either, and hands calls from thread to thread in every line: what stands
# behind it, servers and workers, is judged over connections within the process. And one test makes a
# race on purpose, to see that it is noticed. Examples (suite face) take arguments of another kind.
left_out='Walk2.BrokenAnAnnouncement*:Grpc.*:GrpcFailure.*:GrpcFuzz.*:Plain.*:Tls.*:*OverGrpc.*:*Cells.*Processes*:Files.*'
# Training on emulated GPUs takes minutes here, so most of its tests are left out.
left_out+=':GpuModels.*:GpuLaw.*:GpuLossScale.*:GpuServers.*:GpuLaunches.*:GpuAhead.TheGpuHasWork*'
left_out+=':GpuGraphs.R*:GpuGraphs.W*:GpuGraphs.E*:GpuGraphs.T*:GpuNccl.I*:GpuNccl.T*'
left_out+=':GpuIpc.E*:GpuIpc.O*:GpuIpc.I*:GpuIpc.N*:GpuIpc.Where*:GpuIpc.ProcessesOf*'
# What has one thread alone, and sums on layouts of which one of each kind is enough.
left_out+=':*CheckpointFault*:CheckpointDamage*:*Verifier*:Planner.*:Price.*:Simulator*:Devices.AChain*'
left_out+=':Layouts/Sums.EqualTheSerialResult/one:Layouts/Sums.EqualTheSerialResult/equal:Layouts/*/interleaved'
# A thousand threads take too long.
left_out+=":TcpBootstrap.AThousand*:TouchedRows.TravelBetweenTasks:ServerTask.*:$slow"
test_arguments=(--no-suite face --no-suite one_thread --test-args="--gtest_filter=-$left_out")
run_sanitized build-tsan thread unit -Dmpi=disabled
finish
