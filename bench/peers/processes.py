# SPDX-License-Identifier: MIT
"""Starts processes, waits for them together, and gives what they printed. What does not end well raises Failed."""
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys

PATIENCE = 10  # seconds for a process that was asked to end


class Failed(Exception):
    def __init__(self, text, code=None):
        super().__init__(text)
        self.code = code  # that the process ended with, where that was it


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended as after an error


def cpu():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.machine()


def launch(command, **environment):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, **environment})


def outputs(processes, seconds):
    """What each printed, once all have ended well; after so many seconds none runs any more."""
    printed = []
    try:
        for process in processes:
            printed.append(process.communicate(timeout=seconds))
    except subprocess.TimeoutExpired:
        raise Failed(f"not ready after {seconds} s") from None
    finally:
        end(processes)
    for process, (_, error) in zip(processes, printed):
        if process.returncode != 0:
            raise Failed(f"exit code {process.returncode}: " + " / ".join(error.strip().splitlines()[-3:]),
                         process.returncode)
    return [out for out, _ in printed]


def end(processes):
    """Those that still run: mpirun ends its ranks when it is asked to end, and not when it is killed."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def objects(output):
    """The JSON objects among the lines of what one printed."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]
