#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where /dev/shm has room for 64 MiB, as in a container, ranks of a host share far more memory than that all the same.

usage: small_shm_test.py LOCKSTEP MPIRUN_AND_ITS_ARGUMENTS...

Needs root, to mount one; elsewhere it is skipped: exit code 77, one line says why.
"""
import json
import subprocess
import sys

ROOM = 64 << 20
PROGRAM = """
set -e
mount -t tmpfs -o size=$0 tmpfs /dev/shm
test "$(stat -f -c '%S * %b' /dev/shm | xargs expr)" -eq "$0"
exec "$@"
"""


def main():
    mount = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        print("skipped: mounting another /dev/shm needs root")
        return 77
    size = 2 * ROOM
    bench = [sys.argv[1], "bench", "--json", "--assumed", "--min", str(size), "--max", str(size), "--iterations", "2"]
    for command in ([*sys.argv[2:], "-n", "2", *bench], [*bench, "--ranks", "2"]):
        done = subprocess.run(["unshare", "--mount", "sh", "-c", PROGRAM, str(ROOM), *command], capture_output=True, text=True,
                              timeout=200)
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or len(rows) != 1 or rows[0]["bytes"] != size or rows[0]["wrong"] != 0:
            print(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
