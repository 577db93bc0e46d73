#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Packages for Debian and Ubuntu. `lockstep` has the program and the library, and needs neither MPI nor gRPC;
# `lockstep-full` has them in addition, and replaces it. Each has a second package, ...-dev, for C++ programs.
set -eu

usage() {
  cat <<'TEXT'
usage: tools/package.sh deb [--full] [--output FOLDER]

Builds the packages lockstep and lockstep-dev for the release of Debian or Ubuntu that runs here.
  --full            builds lockstep-full and lockstep-full-dev instead, with all that is installed
                    here: Open MPI, PMIx, gRPC, hwloc, and kernels for GPUs where nvcc is
  --output FOLDER   folder for the packages (default: build/packages)

Jobs start with the package lockstep under srun, torchrun, MPICH's mpiexec, Kubernetes, TF_CONFIG and
--rendezvous. mpirun of Open MPI, parameter servers and --transport mpi need lockstep-full.

exit code: 0 built, 1 not, 2 bad option
TEXT
}

fail() { echo "package: $*" >&2; exit 1; }
bad() { echo "package: $1; tools/package.sh --help says how it is used" >&2; exit 2; }

name=lockstep
other=lockstep-full
output=build/packages
form=''
while [ $# -gt 0 ]; do
  case $1 in
    deb) form=deb ;;
    --full) name=lockstep-full other=lockstep ;;
    --output) [ $# -gt 1 ] || bad "--output needs a folder"; output=$2; shift ;;
    -h | --help) usage; exit 0 ;;
    *) bad "unknown option '$1'" ;;
  esac
  shift
done
[ "$form" = deb ] || bad "which form? known: deb"

cd "$(dirname "${BASH_SOURCE[0]}")/.."
. tools/build_folder.sh
tools/setup.sh --minimal
command -v dpkg-shlibdeps >/dev/null || fail "dpkg-shlibdeps is missing: apt-get install dpkg-dev"

multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
architecture=$(dpkg --print-architecture)
folder=build-package-$name
parts=(-Dmpi=disabled -Dpmix=disabled -Dgrpc=disabled -Dcuda=disabled -Dhwloc=enabled)
if [ "$name" = lockstep-full ]; then parts=(-Dmpi=enabled -Dpmix=enabled -Dgrpc=enabled -Dcuda=auto -Dhwloc=enabled); fi
configure "$folder" --buildtype=release "${unity[@]}" -Dprefix=/usr -Dlibdir="lib/$multiarch" -Dtests=disabled "${parts[@]}" ||
  fail "the build cannot be configured"
compile_aloud "$folder" || fail "the build failed"

top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
main=$top/$name development=$top/$name-dev
DESTDIR=$main meson install -C "$folder" --no-rebuild --quiet >"$top/log" 2>&1 || fail "meson install: $(tail -n 3 "$top/log")"

libraries=usr/lib/$multiarch
mkdir -p "$development/$libraries" "$development/usr"
mv "$main/usr/include" "$development/usr/"
for each in liblockstep.a liblockstep.so pkgconfig cmake; do mv "$main/$libraries/$each" "$development/$libraries/"; done
strip --strip-unneeded "$main/usr/bin/lockstep" "$main/$libraries"/liblockstep.so.*.*.*
strip --strip-debug "$development/$libraries/liblockstep.a"
gzip -9n "$main/usr/share/man/man1/lockstep.1"

version=$(meson introspect --projectinfo "$folder" | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
# What the program and the library link with, as packages with their least versions.
mkdir -p "$top/debian" && : >"$top/debian/control"
needs=$(cd "$top" && dpkg-shlibdeps -O --ignore-missing-info "-l$main/$libraries" -e"$main/usr/bin/lockstep" \
  -e"$(readlink -f "$main/$libraries/liblockstep.so".*.*.*)" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$needs" ] || fail "dpkg-shlibdeps does not know the libraries that the program needs"

# pack FOLDER PACKAGE DEPENDS RIVALS SECTION TEXT
pack() {
  local root=$1 package=$2 depends=$3 rivals=$4 section=$5 text=$6 provides=''
  if [ "$name" = lockstep-full ]; then provides="Provides: $rivals (= $version)"; fi
  mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$package" "$output"
  cp LICENSE "$root/usr/share/doc/$package/copyright"
  (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
  cat >"$root/DEBIAN/control" <<TEXT
Package: $package
Version: $version
Architecture: $architecture
Maintainer: lockstep <lockstep@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $depends
Conflicts: $rivals
Replaces: $rivals${provides:+
$provides}
Section: $section
Priority: optional
Description: $text
TEXT
  chmod -R u=rwX,go=rX "$root"
  dpkg-deb --root-owner-group --build "$root" "$output/${package}_${version}_$architecture.deb" >/dev/null
  echo "package: wrote $output/${package}_${version}_$architecture.deb"
}

: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}" # the same files, whenever they are packed
export SOURCE_DATE_EPOCH
pack "$main" "$name" "$needs" "$other" science "synchronous data-parallel training of neural networks"
pack "$development" "$name-dev" "$name (= $version), libfmt-dev" "$other-dev" libdevel "headers and static library of lockstep"
