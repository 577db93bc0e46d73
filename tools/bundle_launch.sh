#!/bin/sh
# SPDX-License-Identifier: MIT
# In a bundle (bundle.sh): bin/NAME, which starts programs/NAME with the bundle's libraries, plugins and help files,
# wherever the bundle lies. What programs start in turn inherits the environment, and is not searched for again.
# A bundle without NVIDIA's libraries looks for them in LD_LIBRARY_PATH, then in the pip packages of
# the python3 in PATH (nvidia/cudnn, nvidia/cu13, ...), then in /usr/local/cuda/lib64, and where the
# loader looks anyway.
set -u

self=$(readlink -f "$0")
name=${self##*/}
top=${self%/bin/*}

die() {
  echo "$name: $*" >&2
  exit 74
}

# Of glibc alone the machine's own is used.
check_glibc() {
  read -r needed <"$top/glibc_needed" || die "this bundle is not whole: there is no $top/glibc_needed"
  have=$(getconf GNU_LIBC_VERSION 2>/dev/null)
  have=${have#glibc }
  case $have in
    [0-9]*.[0-9]*) ;;
    *) die "this bundle needs glibc $needed or newer; this system has no glibc that getconf knows" ;;
  esac
  minor=${have#*.}
  minor=${minor%%.*}
  if [ "${have%%.*}" -lt "${needed%%.*}" ] ||
    { [ "${have%%.*}" -eq "${needed%%.*}" ] && [ "$minor" -lt "${needed#*.}" ]; }; then
    die "this bundle needs glibc $needed or newer; this system has $have"
  fi
}

# Folders with NVIDIA's libraries, each after a colon: the pip packages of the python3 in PATH, and the toolkit.
vendor_folders() {
  python3 -c '
import os, sys
for place in sys.path:
    for part in ("cudnn", "cublas", "nccl", "cuda_runtime", "cuda_nvrtc", "cu13"):
        folder = os.path.join(place, "nvidia", part, "lib")
        if os.path.isabs(folder) and os.path.isdir(folder):
            sys.stdout.write(":" + folder)
' 2>/dev/null
  if [ -d /usr/local/cuda/lib64 ]; then printf ':/usr/local/cuda/lib64'; fi
}

if [ "${LOCKSTEP_BUNDLE-}" != "$top" ]; then
  LOCKSTEP_BUNDLE=$top
  check_glibc
  LD_LIBRARY_PATH=$top/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if [ ! -e "$top/lib/libcudnn.so.9" ]; then LD_LIBRARY_PATH=$LD_LIBRARY_PATH$(vendor_folders); fi
  PATH=$top/bin:$PATH
  OPAL_PREFIX=$top
  OPAL_BINDIR=$top/bin
  OPAL_LIBDIR=$top/lib
  OPAL_PKGLIBDIR=$top/openmpi/plugins
  OPAL_PKGDATADIR=$top/openmpi/share
  OPAL_SYSCONFDIR=$top/openmpi/etc
  PMIX_PREFIX=$top
  PMIX_LIBDIR=$top/lib
  PMIX_PKGLIBDIR=$top/pmix/plugins
  PMIX_PKGDATADIR=$top/pmix/share
  PMIX_SYSCONFDIR=$top/openmpi/etc
  HWLOC_PLUGINS_PATH=$top/lib/hwloc # nothing: those of the system are for another hwloc
  # Where no other host could be reached Open MPI starts not even a job of this one, unless it is told.
  if ! command -v ssh >/dev/null && ! command -v rsh >/dev/null; then
    export OMPI_MCA_plm="${OMPI_MCA_plm:-isolated}"
  fi
  export LOCKSTEP_BUNDLE LD_LIBRARY_PATH PATH OPAL_PREFIX OPAL_BINDIR OPAL_LIBDIR OPAL_PKGLIBDIR OPAL_PKGDATADIR \
    OPAL_SYSCONFDIR PMIX_PREFIX PMIX_LIBDIR PMIX_PKGLIBDIR PMIX_PKGDATADIR PMIX_SYSCONFDIR HWLOC_PLUGINS_PATH
fi
exec "$top/programs/$name" "$@"
