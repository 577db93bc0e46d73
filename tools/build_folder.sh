# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Part of check.sh and quickstart.sh: build folders. Sourced in the root; not a program.

# Objects are found again by ccache where the same sources lie in another folder.
export CCACHE_BASEDIR="${CCACHE_BASEDIR:-$PWD}" CCACHE_NOHASHDIR="${CCACHE_NOHASHDIR:-1}"

# configure FOLDER [MESON_OPTIONS]: makes the folder, or changes the options where they differ. An
# unfinished one is made anew. Quiet, unless it fails.
configure() {
  local folder=$1 log
  shift
  if [ ! -e "$folder/build.ninja" ]; then
    # Only what meson began itself is removed.
    if [ -d "$folder/meson-private" ]; then rm -rf "$folder"; fi
    set -- meson setup "$folder" "$@"
  elif [ $# -gt 0 ] && ! has_options "$folder" "$@"; then
    set -- meson configure "$folder" "$@"
  else
    return 0
  fi
  log=$("$@" 2>&1) && return 0
  printf '%s\n' "$log" | tail -n 20 >&2
  return 1
}

# Whether the folder already has these options, so that nothing need be generated or built again.
has_options() {
  local folder=$1
  shift
  meson introspect --buildoptions "$folder" 2>/dev/null | python3 -c '
import json, sys
have = {option["name"]: option["value"] for option in json.load(sys.stdin)}
def same(value, wanted):
    if isinstance(value, list):
        return value == wanted.replace(",", " ").split()
    return (str(value).lower() if isinstance(value, bool) else str(value)) == wanted
for argument in sys.argv[1:]:
    name, _, value = argument.removeprefix("--").removeprefix("-D").partition("=")
    if not same(have.get(name), value):
        sys.exit(1)
' "$@"
}

# compile FOLDER [TARGET...]: a progress line on a terminal, elsewhere only what goes wrong.
compile() {
  local folder=$1
  shift
  if [ -t 1 ]; then
    ninja -C "$folder" "$@"
  else
    ninja --quiet -C "$folder" "$@"
  fi
}
