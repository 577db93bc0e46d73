#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The smallest program says the same on one and on three ranks.

usage: hello_test.py HELLO MPIRUN MPIRUN_ARGUMENT...
"""
import socket
import subprocess
import sys

hello, mpirun = sys.argv[1], sys.argv[2:]
for ranks in (1, 3):
    prefix = mpirun + ["-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(prefix + [hello], capture_output=True, text=True, timeout=60)
    wanted = [f"Hello from rank {rank} of {ranks} on host {socket.gethostname()}, device cpu:0, "
              f"all-reduce {'none' if ranks == 1 else 'direct'}" for rank in range(ranks)]
    if done.returncode != 0 or sorted(done.stdout.splitlines()) != wanted:
        sys.exit(f"{ranks} ranks: code {done.returncode}\n{done.stdout}{done.stderr}")
