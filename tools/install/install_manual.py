#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Installs the manual page and the scripts with which shells complete flags, as the program prints them. A program for
another machine, which cannot run here, leaves them out.

usage: install_manual.py LOCKSTEP DATADIR MANDIR     (run by `meson install`)
"""
import os
import subprocess
import sys

from install_headers import destination


def main(lockstep, datadir, mandir):
    texts = {destination(mandir) / "man1/lockstep.1": ["man"],
             destination(datadir) / "bash-completion/completions/lockstep": ["completion", "bash"],
             destination(datadir) / "zsh/site-functions/_lockstep": ["completion", "zsh"],
             destination(datadir) / "fish/vendor_completions.d/lockstep.fish": ["completion", "fish"]}
    for path, arguments in texts.items():
        try:
            text = subprocess.run([lockstep, *arguments], stdout=subprocess.PIPE, check=True).stdout
        except OSError as error:
            print(f"The manual page and completions are left out: {lockstep} does not run here ({error})")
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        path.chmod(0o644)
        if not os.environ.get("MESON_INSTALL_QUIET"):
            print(f"Installing {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
