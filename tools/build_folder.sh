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

# Several sources in a unit: headers and templates, not code, are most of what compiling takes.
unity=(--unity=on --unity-size=16)

# compile_aloud FOLDER [TARGET...]: as compile, and tells on standard error how much is done and about how long the
# rest takes: on a terminal by one line that changes, elsewhere by a line every so many seconds. What compilers say is
# shown, too.
progress_seconds=20
compile_aloud() {
  local folder=$1
  shift
  NINJA_STATUS='[%f/%t] ' ninja -C "$folder" "$@" 2>&1 | show_progress >&2
  return "${PIPESTATUS[0]}"
}

# progress_text FINISHED TOTAL SECONDS: the share that is done, and the time left if the rest takes its share.
progress_text() {
  local left=$(($3 * ($2 - $1) / $1))
  printf '%3d %% built, about %d:%02d left' $((100 * $1 / $2)) $((left / 60)) $((left % 60))
}

# Ninja's lines into what compile_aloud tells.
show_progress() {
  local line shown='' begin=$SECONDS last=$SECONDS
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in 'ninja: Entering directory '* | 'ninja: no work to do.') continue ;; esac
    if [[ ! $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      if [ -n "$shown" ]; then printf '\r\033[K'; shown=''; fi
      printf '%s\n' "$line"
    elif [ "${BASH_REMATCH[1]}" -eq 0 ]; then # the first step, where ninja shows it before it has ended
      continue
    elif [ -t 1 ]; then
      shown=$(progress_text "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" $((SECONDS - begin)))
      printf '\r\033[K%s' "$shown"
    elif [ $((SECONDS - last)) -ge "$progress_seconds" ]; then
      last=$SECONDS
      printf '%s\n' "$(progress_text "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" $((SECONDS - begin)))"
    fi
  done
  if [ -n "$shown" ]; then printf '\n'; fi
}
