#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a program under mpirun on virtual hosts: network namespaces of this machine, each with its own
# host name, address, /dev/shm and a link of limited speed to one switch. Files and processes are shared,
# as are the cores. Needs root. Several clusters may run at once.
set -u

usage() {
  cat <<'TEXT'
usage: tools/virtual_cluster.sh [options] -- PROGRAM [ARGUMENTS]

  --hosts N           virtual hosts, h0 h1 ... (default 2, at most 64)
  --ranks-per-host N  processes on each (default 1); N,N,...: of each host
  --rate RATE         of each host's link, both ways: 100mbit, 1gbit ... (default 1gbit). After a pause it
                      lets 128 KiB through at once, or a millisecond's worth: smaller messages are faster
                      than the rate
  --latency TIME      added to each message, one way: 500us, 5ms ... (default: none)
  --mpirun "ARGS"     more arguments of mpirun, e.g. --mpirun "--enable-recovery -x NAME"

Where there are as many cores as hosts, each host has its equal share of them for itself, as hosts have.

exit code: mpirun's; 2 a bad option; 77 no root, or no network namespaces here
TEXT
}

die() { echo "virtual_cluster: $2" >&2; exit "$1"; }

hosts=2 ranks=1 rate=1gbit latency='' extra=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    --hosts | --ranks-per-host | --rate | --latency | --mpirun)
      [ $# -ge 2 ] || die 2 "$1 wants a value (--help says more)" ;;&
    --hosts) hosts=$2; shift 2 ;;
    --ranks-per-host) ranks=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --latency) latency=$2; shift 2 ;;
    --mpirun) read -r -a extra <<<"$2"; shift 2 ;;
    *) die 2 "unknown option '$1'; the program stands after -- (--help says more)" ;;
  esac
done
[ $# -gt 0 ] || die 2 "no program: it stands after -- (--help says more)"
[ "${1##*/}" != mpirun ] || die 2 "starts mpirun itself: after -- stands the program alone, mpirun's arguments in --mpirun"
[[ $hosts =~ ^([1-9]|[1-5][0-9]|6[0-4])$ ]] || die 2 "--hosts is 1 to 64, not '$hosts'"
[[ $ranks =~ ^[1-9][0-9]{0,2}(,[1-9][0-9]{0,2})*$ ]] ||
  die 2 "--ranks-per-host is 1 to 999, or such a number for each host with commas between, not '$ranks'"
IFS=, read -r -a ranks_of <<<"$ranks"
[ ${#ranks_of[@]} -eq 1 ] || [ ${#ranks_of[@]} -eq "$hosts" ] ||
  die 2 "--ranks-per-host $ranks is of ${#ranks_of[@]} hosts, and there are $hosts"
[[ $rate =~ ^([1-9][0-9]*)(k|m|g)bit$ ]] || die 2 "--rate is a number with kbit, mbit or gbit, not '$rate'"
case ${BASH_REMATCH[2]} in k) unit=1000 ;; m) unit=1000000 ;; g) unit=1000000000 ;; esac
bytes_a_second=$((BASH_REMATCH[1] * unit / 8))
[[ -z $latency || $latency =~ ^[0-9]+(us|ms)$ ]] || die 2 "--latency is a number with us or ms, not '$latency'"

[ "$(id -u)" -eq 0 ] || die 77 "needs root, to make network namespaces"
for program in ip tc nsenter unshare setpriv flock taskset mpirun; do
  command -v "$program" >/dev/null || die 77 "needs $program (packages iproute2, util-linux, openmpi-bin)"
done

# A cluster has a number, which is in its names and addresses: namespaces lockstep-NUMBER-h0 ... and
# -switch, addresses 10.77.NUMBER.1 ... It is held by a lock that the kernel drops with this process,
# however that ends: so names without a lock are left over from a killed run, and are removed.
state=/run/lockstep-cluster
mkdir -p "$state" || die 77 "cannot write to $state"

# Ends the processes of cluster $1 and removes what it made.
remove_cluster() {
  local number=$1 name names pids
  names=$(ip netns list 2>/dev/null | sed -n "s/^\(lockstep-$number-[a-z0-9]*\).*/\1/p")
  for signal in TERM KILL; do
    for _ in 1 2 3 4 5 6 7 8 9 10; do
      pids=$(for name in $names; do ip netns pids "$name" 2>/dev/null; done)
      [ -n "$pids" ] || break
      # shellcheck disable=SC2086
      kill -"$signal" $pids 2>/dev/null
      sleep 0.1
    done
  done
  for name in $names; do
    ip netns del "$name" 2>/dev/null
  done
  rm -rf "${state:?}/$number"
}

# take NUMBER: locks it, for as long as the descriptor `lock` is open.
take() { exec {lock}>"$state/$1.lock" && flock -n "$lock"; }

for left in "$state"/*/; do
  [ -d "$left" ] || continue
  if take "$(basename "$left")"; then remove_cluster "$(basename "$left")"; fi
  exec {lock}>&-
done
number=''
for candidate in $(seq 0 255); do
  if take "$candidate"; then
    number=$candidate
    break
  fi
  exec {lock}>&-
done
[ -n "$number" ] || die 1 "256 clusters are running already"
folder=$state/$number
remove_cluster "$number" # names that are left without a folder
mkdir -p "$folder"

job=''
# shellcheck disable=SC2317 # called by the trap
finish() {
  local code=$?
  trap '' INT TERM HUP
  if [ -n "$job" ] && kill -TERM "$job" 2>/dev/null; then
    for _ in $(seq 30); do kill -0 "$job" 2>/dev/null && sleep 0.1; done # mpirun ends its processes
  fi
  remove_cluster "$number"
  exit "$code"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Everything below that fails before the program starts means that this machine cannot do it.
try() {
  local said
  said=$("$@" 2>&1) || die 77 "cannot make a virtual network here: '$*': ${said:-failed}"
}

# A shaper that cannot hold one whole 64 KiB packet with its headers drops half of what it is given; one
# that holds less than a millisecond's worth does not reach its rate.
burst=$((bytes_a_second / 1000 > 131072 ? bytes_a_second / 1000 : 131072))
shape() { # NAMESPACE DEVICE [DELAY]
  local parent=(root)
  if [ -n "${3:-}" ]; then
    tc -n "$1" qdisc add dev "$2" root handle 1: netem delay "$3" limit 100000 2>/dev/null ||
      die 77 "this kernel has no netem, which delays messages: leave out --latency"
    parent=(parent 1:1)
  fi
  try tc -n "$1" qdisc add dev "$2" "${parent[@]}" tbf rate "$rate" burst "$burst" latency 20ms
}

all_cores=() # that this process may use: of "0-3,8" each
IFS=, read -r -a ranges <<<"$(taskset -cp $$ | sed 's/.*: //')"
for range in "${ranges[@]}"; do
  mapfile -t -O ${#all_cores[@]} all_cores < <(seq "${range%-*}" "${range#*-}")
done
# Those of host $1: its share, or all where there are too few.
cores_of() {
  local share=$((${#all_cores[@]} / hosts))
  local mine=("${all_cores[@]}")
  [ "$share" -eq 0 ] || mine=("${all_cores[@]:$(($1 * share)):$share}")
  local IFS=,
  echo "${mine[*]}"
}

switch=lockstep-$number-switch
try ip netns add "$switch"
try ip -n "$switch" link add br0 type bridge stp_state 0 forward_delay 0
try ip -n "$switch" link set br0 up
echo "127.0.0.1 localhost" >"$folder/hosts"
list='' processes=0
for ((i = 0; i < hosts; i++)); do
  name=lockstep-$number-h$i
  try ip netns add "$name"
  try ip -n "$name" link set lo up
  try ip -n "$switch" link add "v$i" type veth peer name eth0 netns "$name"
  try ip -n "$switch" link set "v$i" master br0 up
  try ip -n "$name" addr add "10.77.$number.$((i + 1))/24" dev eth0
  try ip -n "$name" link set eth0 up
  # The machine's own choice would be inherited: what most clusters use, where it is there.
  nsenter --net="/run/netns/$name" sysctl -qw net.ipv4.tcp_congestion_control=cubic 2>/dev/null
  shape "$name" eth0
  shape "$switch" "v$i" "$latency"
  echo "10.77.$number.$((i + 1)) h$i" >>"$folder/hosts"
  cores_of "$i" >"$folder/cores-h$i"
  here=${ranks_of[i]:-$ranks}
  list+=${list:+,}h$i:$here
  processes=$((processes + here))
done

# host.sh NAME PROGRAM [ARGUMENTS] runs a program on a virtual host; the shell of mpirun's agent, which
# hands over one command line for a shell, as ssh does, is agent.sh NAME COMMAND...
cat >"$folder/host.sh" <<TEXT
host=\$1
shift
exec taskset -c "\$(cat "$folder/cores-\$host")" nsenter --net=/run/netns/lockstep-$number-\$host unshare --mount --uts bash -c '
  hostname "\$0" && mount --bind "$folder/hosts" /etc/hosts && mount -t tmpfs -o size=50% tmpfs /dev/shm &&
  exec "\$@"' "\$host" "\$@"
TEXT
cat >"$folder/agent.sh" <<TEXT
host=\$1
shift
exec bash "$folder/host.sh" "\$host" bash -c "\$*"
TEXT

# As environment, so that the same parameter in --mpirun counts (mpirun refuses one given twice).
export OMPI_MCA_plm_rsh_agent="bash $folder/agent.sh"
export OMPI_MCA_btl=tcp,self,vader OMPI_MCA_pml=ob1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_oob_tcp_keepalive_time=10 OMPI_MCA_oob_tcp_keepalive_intvl=5 OMPI_MCA_oob_tcp_keepalive_probes=3
export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# In the background, since a trap waits for a program in front of it; without the lock, which would
# outlive this process; and ended by the kernel when this process is killed.
setpriv --pdeathsig TERM bash "$folder/host.sh" h0 mpirun --host "$list" -n $processes \
  --map-by slot --bind-to none "${extra[@]}" "$@" <&0 {lock}>&- &
job=$!
wait "$job"
code=$?
job=''
exit "$code"
