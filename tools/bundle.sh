#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Packs the built programs, and all that they need but glibc and the GPUs' driver, into one folder that runs on a
# machine without lockstep's packages. bin/NAME there is a launcher (bundle_launch.sh), also for the
# bundle's own mpirun. Its jobs may span hosts that have the bundle in the same folder, without a
# space in its name. Another mpirun does not fit. Open MPI's plugins for networks other than TCP are
# not packed.
set -u

usage() {
  cat <<'TEXT'
usage: tools/bundle.sh [--without-vendor] [--build FOLDER] [--output FILE.tar.gz|FOLDER]

Packs lockstep, the benchmarks of steps and devices, the tests of GPUs, mpirun with what Open MPI needs, the shared
libraries of all these, gpu_check.sh and the scripts of bench/peers. Builds nothing, and leaves the build folder as it
is.
  --without-vendor   without cuDNN, cuBLAS and NCCL: the bundle looks for them where it runs
  --build FOLDER     what was built (default build)
  --output PATH      an archive where it ends in .tar.gz, which replaces an older one; otherwise a folder, which
                     must not be there yet (default lockstep-bundle.tar.gz in the build folder)

CUDA_HOME is where cuDNN, cuBLAS and NCCL are taken from (default /usr/local/cuda).

exit code: 0 packed, 1 something is missing or could not be written, 2 bad option
TEXT
}

say() { echo "bundle: $*"; }
fail() { echo "bundle: $*" >&2; exit 1; }
refuse() { echo "bundle: $*" >&2; exit 2; }

# A bundle has them from the machine where it runs: other versions than that system's own would not work there.
not_packed='^(linux-vdso|ld-linux.*|lib(c|m|pthread|dl|rt|util|resolv|anl|mvec|nsl|nss_.*|cuda|nvidia-.*))\.so(\.|$)'

# NVIDIA's libraries, by the names by which programs and they themselves open them.
vendor_libraries=('libcublas\.so\.[0-9]+' 'libcublasLt\.so\.[0-9]+' 'libcudnn(_.*)?\.so\.[0-9]+' 'libnccl\.so\.[0-9]+'
  'libnvrtc\.so\.[0-9]+' 'libnvrtc-builtins\.so\.[0-9]+\.[0-9]+')

# Plugins of Open MPI for networks that a bundle does not bring, for OpenSHMEM, and for watching messages.
plugins_not_packed='mca_.*_(ucx|ofi|openib|psm2?|monitoring)\.so|mca_(atomic|memheap|scoll|spml|sshmem)_.*'

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
vendor=yes build=$source/build output='' cuda_home=${CUDA_HOME:-/usr/local/cuda}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --without-vendor) vendor=no; shift; continue ;;
    --build | --output) [ -n "${2-}" ] || refuse "$1 wants a value (--help says more)" ;;&
    --build) build=$2; shift 2 ;;
    --output) output=$2; shift 2 ;;
    *) refuse "unknown option '$1'; known: --without-vendor, --build, --output, --help" ;;
  esac
done
output=${output:-$build/lockstep-bundle.tar.gz}
[ -x "$build/tools/lockstep" ] || fail "no $build/tools/lockstep: build it first, or say --build FOLDER"
case $output in
  *.tar.gz) [ ! -d "$output" ] || refuse "$output is a folder: an archive wants another name" ;;
  *) [ ! -e "$output" ] || refuse "$output is there already: say another folder, or remove it" ;;
esac
for tool in ldd readelf strip gzip tar; do
  command -v $tool >/dev/null || fail "no $tool (Debian: binutils, libc-bin, gzip, tar)"
done

# All is made beside the output, so that nothing half-written gets its name.
work=$(mktemp -d "$(dirname "$output")/.bundle.XXXXXX") || fail "$(dirname "$output") cannot be written"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
top=$work/lockstep-bundle
mkdir -p "$top"/{bin,programs,lib,tools,bench,test} || exit 1
copy() { cp -L -- "$@" || fail "cannot copy to ${!#}"; }

# The programs.
mapfile -t programs < <(find "$build/bench" "$build/test" -path '*.p' -prune -o -type f -perm -u+x \
  \( -regex '.*/bench_\(device\|step\)' -o -name test_cuda_graphs -o -name test_gpu_train -o -name test_ops \) -print 2>/dev/null | sort)
case " ${programs[*]} " in
  */test_ops\ *) ;;
  *) fail "$build has no tests, which a bundle carries: build them (meson configure $build -Dtests=enabled)" ;;
esac
copy "$build/tools/lockstep" "${programs[@]}" "$top/programs"
say "lockstep and ${#programs[@]} other programs"

# What Open MPI opens by name, from where it says that it is.
copy_mpi() {
  local paths
  mapfile -t paths < <(ompi_info --path all --parsable 2>/dev/null)
  where() { printf '%s\n' "${paths[@]}" | sed -n "s/^path:$1://p" | head -n 1; }
  [ -n "$(where pkglibdir)" ] || fail "lockstep was built with Open MPI, but ompi_info is missing (Debian: openmpi-bin)"
  copy "$(command -v mpirun)" "$top/programs/mpirun"
  copy "$(where bindir)/orted" "$top/programs/orted"
  mkdir -p "$top"/openmpi/{plugins,etc}
  find "$(where pkglibdir)" -name 'mca_*.so' | sort | grep -vE "/($plugins_not_packed)\$" >"$work/plugins"
  xargs -d '\n' cp -L -t "$top/openmpi/plugins" <"$work/plugins" || fail "cannot copy Open MPI's plugins"
  cp -RL "$(where pkgdatadir)" "$top/openmpi/share" || fail "cannot copy Open MPI's help files"
  say "mpirun with $(wc -l <"$work/plugins") plugins"
}

# PMIx, which Open MPI uses, has plugins and help files beside its library.
copy_pmix() {
  local folder
  folder=$(dirname "$1")
  if [ -d "$folder/pmix" ]; then
    find "$folder/pmix" -name '*.so' >>"$work/plugins"
    mkdir -p "$top/pmix/plugins"
    copy "$folder"/pmix/*.so "$top/pmix/plugins"
  fi
  [ ! -d "$folder/../share/pmix" ] || cp -RL "$folder/../share/pmix" "$top/pmix/share" ||
    fail "cannot copy PMIx's help files"
}

# "NAME PATH" of each library that the files need, directly or not; PATH is 'not' where nobody has it. Of
# plugins the originals are asked, who know where they lie.
libraries_of() { LC_ALL=C ldd "$@" 2>/dev/null | awk '$2 == "=>" {print $1, $3}' | sort -u; }

: >"$work/plugins"
needed=$(libraries_of "$build/tools/lockstep")
if grep -q '^libmpi\.so' <<<"$needed"; then copy_mpi; fi
pmix=$(awk '/^libpmix\.so/ {print $2}' <<<"$needed")
if [ -n "$pmix" ]; then copy_pmix "$pmix"; fi

# The libraries.
mapfile -t plugins <"$work/plugins"
originals=("$build/tools/lockstep" "${programs[@]}" "${plugins[@]}")
if [ -e "$top/programs/mpirun" ]; then originals+=("$(command -v mpirun)" "$(command -v orted)"); fi
count=0
while read -r name path; do
  [[ ! $name =~ $not_packed ]] || continue
  [ "$path" != not ] || fail "$name, which a program or plugin needs, is not on this machine"
  copy "$path" "$top/lib/$name"
  count=$((count + 1))
done < <(libraries_of "${originals[@]}")
say "$count shared libraries"
find "$top/programs" "$top/lib" "$top"/openmpi/plugins "$top"/pmix/plugins -type f -print0 2>/dev/null |
  xargs -0 strip --strip-unneeded || fail "strip failed"

if [ "$vendor" = yes ]; then
  for pattern in "${vendor_libraries[@]}"; do
    mapfile -t found < <(find -L "$cuda_home/lib64" -maxdepth 1 -type f -regextype posix-extended -regex ".*/$pattern")
    [ ${#found[@]} -gt 0 ] ||
      fail "no ${pattern%%[\\(]*}.so in $cuda_home/lib64: install it, set CUDA_HOME, or say --without-vendor"
    copy "${found[@]}" "$top/lib"
  done
  say "cuDNN, cuBLAS and NCCL from $cuda_home/lib64"
fi

# Scripts, and what they run.
copy "$source/tools/gpu_check.sh" "$source/tools/gpu_report.py" "$top/tools"
mkdir -p "$top"/bench/peers "$top"/test/engine/cuda
copy "$source"/bench/peers/*.py "$top/bench/peers"
copy "$source/test/engine/cuda/h200.json" "$top/test/engine/cuda"
for program in "$top"/programs/*; do
  copy "$source/tools/bundle_launch.sh" "$top/bin/${program##*/}"
  chmod 755 "$top/bin/${program##*/}"
done

# The newest glibc that a file asks for.
glibc=$(find "$top" -type f \( -path '*/programs/*' -o -name '*.so*' \) -print0 |
  xargs -0 readelf --wide -V 2>/dev/null | grep -o 'GLIBC_[0-9][0-9.]*' | sort -u -V | tail -n 1)
[ -n "$glibc" ] || fail "no file says which glibc it needs"
echo "${glibc#GLIBC_}" >"$top/glibc_needed"
version=$(sed -n "s/^  version: '\(.*\)',\$/\1/p" "$source/meson.build" | head -n 1)
commit=$(git -C "$source" describe --always --dirty 2>/dev/null || echo unknown)
echo "lockstep $version, commit $commit, NVIDIA's libraries inside: $vendor" >"$top/version"
say "needs glibc ${glibc#GLIBC_} or newer"

case $output in
  *.tar.gz)
    say "compressing $(du -sh "$top" | cut -f 1)"
    tar -C "$work" --owner=0 --group=0 -cf - lockstep-bundle | gzip >"$work/archive"
    [ "${PIPESTATUS[*]}" = '0 0' ] || fail "the archive could not be written"
    mv "$work/archive" "$output" || fail "$output could not be written"
    ;;
  *) mv -T "$top" "$output" || fail "$output could not be written" ;;
esac
say "$output ($(du -sh "$output" | cut -f 1)); bin/lockstep doctor is a first try, tools/gpu_check.sh the whole"
