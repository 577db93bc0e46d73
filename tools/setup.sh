#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the Debian or Ubuntu packages that lockstep needs, the missing ones only. Where everything is
# there it changes nothing and takes a fraction of a second.
#
# The packages of other systems (these commands have not been tried):
#   Fedora: dnf install gcc-c++ meson ninja-build pkgconf-pkg-config fmt-devel spdlog-devel json-devel
#     cli11-devel zlib-devel eigen3-devel onednn-devel highway-devel Random123-devel openmpi-devel
#     pmix-devel hwloc-devel grpc-devel protobuf-lite-devel protobuf-compiler openssl-devel
#     gtest-devel gmock-devel      then: module load mpi
#   Arch: pacman -S base-devel meson fmt spdlog nlohmann-json cli11 zlib eigen onednn highway
#     random123 openmpi openpmix hwloc grpc protobuf openssl gtest
# macOS and Windows need a Linux container.
set -u

usage() {
  cat <<'TEXT'
usage: tools/setup.sh [--minimal]

Installs the missing packages with apt-get, as root or through sudo; asks nothing.
  --minimal   what building and training need; otherwise also what the tests need

exit code: 0 everything is there, 1 something is missing and could not be installed, 2 bad option
TEXT
}

# What building and training need.
build=(
  g++ meson ninja-build pkg-config
  libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libssl-dev
  libeigen3-dev libdnnl-dev libhwy-dev librandom123-dev
  libopenmpi-dev openmpi-bin libpmix-dev libhwloc-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler
)
# What the tests need besides, and what makes building again fast.
tests=(ccache git python3 libgtest-dev libgmock-dev iproute2 cmake openssl clang-format-14)
# Not every release has these; without them a test is skipped and says so.
optional=(clang-format-14)

meson_needed=1.0

say() { echo "setup: $*"; }
fail() { echo "setup: $*" >&2; exit 1; }

wanted=("${build[@]}" "${tests[@]}")
for argument in "$@"; do
  case $argument in
    --minimal) wanted=("${build[@]}") ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup: unknown option '$argument'; known: --minimal, --help" >&2; exit 2 ;;
  esac
done

# Of the packages named, those that are not installed, one a line. dpkg-query answers in one call.
missing_of() {
  local installed
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p')
  printf '%s\n' "$@" | grep -vxF -f <(printf '%s\n' "$installed" | sed '/^$/d')
}

# Ubuntu 22.04 packages an older meson than the build files need.
check_meson() {
  local have
  have=$(meson --version 2>/dev/null) || fail "meson does not run"
  if [ "$(printf '%s\n%s\n' "$meson_needed" "$have" | sort -V | head -n 1)" != "$meson_needed" ]; then
    fail "meson $have is too old, $meson_needed or newer is needed: e.g. 'pipx install meson'"
  fi
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup: no apt-get here. What lockstep needs, by Debian's names (tools/README.md, section Building, says more):" >&2
  printf '  %s\n' "${wanted[*]}" >&2
  exit 1
fi

known() { apt-cache show "$1" >/dev/null 2>&1; }

# Takes from `missing` what is optional and unknown to this release. Needs package lists.
drop_unknown() {
  local package
  for package in "${optional[@]}"; do
    if [[ " ${missing[*]} " == *" $package "* ]] && ! known "$package"; then
      say "this release has no $package; a test that wants it will be skipped"
      mapfile -t missing < <(printf '%s\n' "${missing[@]}" | grep -vxF "$package")
    fi
  done
}

mapfile -t missing < <(missing_of "${wanted[@]}")
# A fresh container has no package lists: then apt knows not even g++.
if [ ${#missing[@]} -gt 0 ] && known g++; then drop_unknown; fi
if [ ${#missing[@]} -eq 0 ]; then
  say "all packages are installed"
  check_meson
  exit 0
fi
say "missing: ${missing[*]}"

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    fail "not root, and no sudo: as root run 'apt-get install ${missing[*]}'"
  elif sudo -n true 2>/dev/null || [ -t 0 ]; then  # on a terminal sudo may ask for its password
    as_root=(sudo)
  else
    fail "not root, and sudo wants a password: as root run 'apt-get install ${missing[*]}'"
  fi
fi

log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" \
    </dev/null >>"$log" 2>&1
}
refreshed=no
refresh() {
  [ "$refreshed" = no ] || return 0
  say "apt-get update"
  apt update || say "apt-get update reported errors; going on with the lists there are"
  refreshed=yes
}
if ! known g++; then
  refresh
  drop_unknown
fi
if [ ${#missing[@]} -gt 0 ]; then
  say "apt-get install ${#missing[@]} packages (minutes on a bare machine)"
  if ! apt install --no-install-recommends "${missing[@]}"; then
    refresh # the lists may be old
    if ! apt install --no-install-recommends "${missing[@]}"; then
      tail -n 15 "$log" >&2
      fail "apt-get install failed; the last lines of what it said stand above"
    fi
  fi
fi
check_meson
say "done"
