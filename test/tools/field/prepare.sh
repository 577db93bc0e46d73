#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs the launchers of other projects for the tests of this folder: Slurm and munge from the distribution (as root),
# MPICH and torchrun from PyPI into virtual environments in the folder $1,
# and the tools that make bare roots and packages. Takes some minutes and gigabytes.
set -eu
folder=$1
if ! PATH=$PATH:/usr/sbin command -v slurmctld munged >/dev/null; then
  # Nothing is to start a cluster of its own.
  printf '#!/bin/sh\nexit 101\n' >"$folder.policy" && chmod +x "$folder.policy"
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    cp "$folder.policy" /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm munge >/dev/null
  rm -f "$folder.policy"
fi
if ! command -v debootstrap dpkg-shlibdeps >/dev/null; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap dpkg-dev >/dev/null
fi
for package in mpich torch; do
  if [ ! -e "$folder/$package/done" ]; then
    python3 -m venv "$folder/$package"
    "$folder/$package/bin/pip" install -q --disable-pip-version-check "$package"
    touch "$folder/$package/done"
  fi
done
