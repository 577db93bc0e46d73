#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Starts the tasks of a parameter server job on this machine one by one, each by TF_CONFIG alone: what a
# launcher of containers does on many. Waits for the chief, then for the others.
set -u

usage() {
  cat <<'TEXT'
usage: tools/task_cluster.sh [options] -- [FLAGS OF lockstep train]

  --workers N     tasks that train, the first of them the chief (default 4, at most 64)
  --servers N     tasks that keep the variables (default 2, at most 64)
  --port PORT     the first task listens on this port of 127.0.0.1, the next on the one after it, ...
                  (default 2221)
  --program FILE  the program (default build/tools/lockstep of this checkout)
  --print         prints the commands instead: for other machines, with their addresses in place of these

Each server runs `lockstep serve --life 60`, each worker `lockstep train --strategy parameter_server FLAGS`. What a task
says on standard error has its name before it; standard output, where results go, is the chief's alone. When the
chief has ended the others have 30 s; who is left then is ended.

exit code: the chief's; 75 when another task failed although the chief did not; 2 a bad option; 130, 143 a signal
TEXT
}

die() { echo "task_cluster: $2" >&2; exit "$1"; }

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
workers=4 servers=2 port=2221 program=$root/build/tools/lockstep print=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    --print) print=yes; shift; continue ;;
    --workers | --servers | --port | --program)
      [ $# -ge 2 ] || die 2 "$1 wants a value (--help says more)" ;;&
    --workers) workers=$2; shift 2 ;;
    --servers) servers=$2; shift 2 ;;
    --port) port=$2; shift 2 ;;
    --program) program=$2; shift 2 ;;
    *) die 2 "unknown option '$1'; the flags of lockstep train stand after -- (--help says more)" ;;
  esac
done
for name in workers servers; do
  [[ ${!name} =~ ^([1-9]|[1-5][0-9]|6[0-4])$ ]] || die 2 "--$name is 1 to 64, not '${!name}'"
done
[[ $port =~ ^[1-9][0-9]{0,4}$ ]] && [ $((port + workers + servers - 1)) -le 65535 ] ||
  die 2 "--port $port: the $((workers + servers)) tasks need ports from there up to 65535"
[ -x "$program" ] || die 2 "$program is no program: build it, or say --program FILE"

# "127.0.0.1:P","127.0.0.1:P+1",...: so many from port $1 on.
addresses() {
  local list='' i
  for ((i = 0; i < $2; ++i)); do list+="${list:+,}\"127.0.0.1:$(($1 + i))\""; done
  echo "$list"
}
cluster="{\"worker\":[$(addresses "$port" "$workers")],\"ps\":[$(addresses $((port + workers)) "$servers")]}"
# The whole description for task $2 of job $1.
config() { echo "{\"cluster\":$cluster,\"task\":{\"type\":\"$1\",\"index\":$2}}"; }

serve=("$program" serve --life 60)   # seconds without a call: the chief looks after its servers every second
train=("$program" train --strategy parameter_server "$@")

if [ -n "$print" ]; then
  for ((i = 0; i < servers; ++i)); do echo "TF_CONFIG='$(config ps $i)' ${serve[*]@Q}"; done
  for ((i = 0; i < workers; ++i)); do echo "TF_CONFIG='$(config worker $i)' ${train[*]@Q}"; done
  exit 0
fi

names=() processes=() codes=()
# start JOB INDEX COMMAND...: in the background, its standard error with its name before each line.
start() {
  local name="$1 $2"
  TF_CONFIG=$(config "$1" "$2") "${@:3}" 2> >(
    trap '' INT TERM   # of a terminal too: what a task says at its end is said
    exec sed -u "s/^/$name: /" >&2
  ) &
  names+=("$name") processes+=($!)
}

# All that still run get the signal.
send() {
  local process
  for process in "${processes[@]}"; do kill "-$1" "$process" 2>/dev/null; done
}
signal=0
trap 'signal=130; send TERM' INT   # shells start what is in the background deaf to SIGINT
trap 'signal=143; send TERM' TERM
trap 'send KILL' EXIT

# The code of task $1, which may still run: a signal to this script ends `wait` early.
await() {
  local code
  while wait "${processes[$1]}"; code=$?; [ $code -gt 128 ] && kill -0 "${processes[$1]}" 2>/dev/null; do :; done
  codes[$1]=$code
}

for ((i = 0; i < servers; ++i)); do start ps $i "${serve[@]}" >/dev/null; done
chief=${#processes[@]}
start worker 0 "${train[@]}"
for ((i = 1; i < workers; ++i)); do start worker $i "${train[@]}" >/dev/null; done

# Until the chief has ended: nobody starts the others again, so who fails is named at once, and without a server
# the job cannot go on.
lost=''   # a server
while kill -0 "${processes[chief]}" 2>/dev/null; do
  for ((i = 0; i < ${#processes[@]}; ++i)); do
    [ "$i" -eq "$chief" ] || [ -n "${codes[i]:-}" ] && continue
    kill -0 "${processes[i]}" 2>/dev/null && continue
    { await "$i"; } 2>/dev/null
    [ "${codes[i]}" -eq 0 ] || [ $signal -ne 0 ] && continue
    if [ "$i" -ge "$chief" ]; then
      echo "task_cluster: ${names[i]} ended with ${codes[i]}: the others go on" >&2
    elif [ -z "$lost" ]; then
      lost=${names[i]}
      echo "task_cluster: $lost ended with ${codes[i]}: without it the job ends" >&2
      send TERM
    fi
  done
  sleep 0.1
done
{ await "$chief"; } 2>/dev/null
for ((left = 300; left > 0; --left)); do
  running=0
  for process in "${processes[@]}"; do kill -0 "$process" 2>/dev/null && running=$((running + 1)); done
  [ $running -eq 0 ] && break
  sleep 0.1
done
for ((i = 0; i < ${#processes[@]}; ++i)); do
  if kill -0 "${processes[i]}" 2>/dev/null; then
    echo "task_cluster: ${names[i]} did not end 30 s after the chief, and is ended" >&2
    kill -KILL "${processes[i]}"
  fi
  [ -n "${codes[i]:-}" ] || { await "$i"; } 2>/dev/null
done
trap - EXIT
[ $signal -eq 0 ] || exit $signal
[ -z "$lost" ] || exit 75
[ "${codes[chief]}" -eq 0 ] || exit "${codes[chief]}"
for ((i = 0; i < ${#processes[@]}; ++i)); do
  [ "${codes[i]}" -eq 0 ] || die 75 "${names[i]} ended with ${codes[i]}"
done
