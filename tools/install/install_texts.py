#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs the manual page and the scripts with which shells complete flags, as the program prints them.

usage: install_texts.py LOCKSTEP DATADIR MANDIR     (run by `meson install`)
"""
import os
import pathlib
import subprocess
import sys


def main(lockstep, datadir, mandir):
    def folder(name):
        if os.path.isabs(name):
            return pathlib.Path(os.environ.get("DESTDIR", "") + name)
        return pathlib.Path(os.environ["MESON_INSTALL_DESTDIR_PREFIX"]) / name

    texts = {folder(mandir) / "man1/lockstep.1": ["man"],
             folder(datadir) / "bash-completion/completions/lockstep": ["completion", "bash"],
             folder(datadir) / "zsh/site-functions/_lockstep": ["completion", "zsh"],
             folder(datadir) / "fish/vendor_completions.d/lockstep.fish": ["completion", "fish"]}
    for path, arguments in texts.items():
        text = subprocess.run([lockstep, *arguments], stdout=subprocess.PIPE, check=True).stdout
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        path.chmod(0o644)
        if not os.environ.get("MESON_INSTALL_QUIET"):
            print(f"Installing {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
