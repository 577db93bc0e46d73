#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs the headers that users may include, and all that those include.

usage: install_headers.py SOURCE INCLUDEDIR HEADER...     (run by `meson install`)

HEADER are paths from SOURCE whose folder is called lockstep; they become INCLUDEDIR/lockstep/NAME. What
they include by a path from SOURCE, "engine/base/error.h", becomes INCLUDEDIR/lockstep/engine/base/error.h,
and the include is written "lockstep/engine/base/error.h". So a user needs one -I, and neither his folder
`engine` nor ours can hide the other's.
"""
import os
import pathlib
import re
import sys

OURS = re.compile(r'^(\s*#\s*include\s*)"((?:engine|collectives|strategies|models)/[^"]+)"', re.MULTILINE)


def closure(source, headers):
    """The text of each header and of all that it includes, by path from `source`."""
    found, waiting = {}, list(headers)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = (source / path).read_text(encoding="utf-8")
            waiting += [match[2] for match in OURS.finditer(found[path])]
    return found


def place(path):
    """Where a header lies under INCLUDEDIR."""
    return "lockstep/" + (path.split("/lockstep/")[1] if "/lockstep/" in path else path)


def destination(folder):
    """Where a folder of Meson's options lies: under the prefix, or from the root."""
    if os.path.isabs(folder):
        return pathlib.Path(os.environ.get("DESTDIR", "") + folder)
    return pathlib.Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / folder


def main(source, includedir, *headers):
    top = destination(includedir)
    found = closure(pathlib.Path(source), headers)
    for path, text in sorted(found.items()):
        target = top / place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(OURS.sub(lambda m: f'{m[1]}"{place(m[2])}"', text), encoding="utf-8")
        target.chmod(0o644)
    if not os.environ.get("MESON_INSTALL_QUIET"):
        print(f"Installing {len(found)} headers to {top / 'lockstep'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
