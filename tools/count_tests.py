#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts what `meson test` ran, case by case, and ends with the line `N passed, N failed, N skipped`.

usage: count_tests.py [--failed TEXT]... FOLDER...

FOLDER are build folders in which `meson test` has run once; TEXT is a failure from elsewhere, such as a
build that did not compile. Before the last line stands each skip with its reason and each failure with
its log. Returns 1 when something failed, or when nothing passed.

Two files are read. testlog.json says how each program ended; testlog.junit.xml holds the cases of
GoogleTest's programs. The program's end decides: one that crashes, hangs or fails on its way out (a leak
that a sanitizer saw) is a failure even where all the cases that were written down passed.
"""
import argparse
import json
import pathlib
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter


class Count:
    """What was found so far: numbers, and lines for what did not pass."""

    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def line(self):
        return f"{self.passed} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def message_of(element):
    """GoogleTest's message: without the first line where that is the place, on one line."""
    lines = [line.strip() for line in (element.get("message") or "").splitlines()]
    if len(lines) > 1:
        lines = lines[1:]
    return " ".join(line for line in lines if line)


def count_case(count, title, case, log):
    """Adds one GoogleTest case; true when it failed."""
    title = f"{title}: {case.get('classname')}.{case.get('name')}"
    failure = case.find("failure")
    if failure is None:
        failure = case.find("error")
    skipped = case.find("skipped")
    if failure is not None:
        count.failed.append(f"{title}: {message_of(failure)} (log: {log})")
        return True
    if skipped is not None:
        count.skipped.append(f"{title}: {message_of(skipped) or 'no reason given'}")
    elif case.get("status") == "notrun":
        count.skipped.append(f"{title}: disabled")
    else:
        count.passed += 1
    return False


def count_program(count, folder, run, cases):
    """Adds one program of testlog.json, with the GoogleTest cases that it reported, maybe none."""
    title = f"{folder.name}: {run['name'].split(' / ')[-1]}"
    log = folder / "meson-logs/testlog.txt"
    told = [count_case(count, title, case, log) for case in cases]
    result = run["result"]
    if result == "SKIP":
        reason = last_line(run.get("stdout", "")) or last_line(run.get("stderr", ""))
        count.skipped.append(f"{title}: {reason or 'no reason given'}")
    elif result not in ("OK", "EXPECTEDFAIL"):
        if not any(told):
            count.failed.append(f"{title}: {result.lower()}, exit status {run['returncode']} (log: {log})")
    elif not told:
        count.passed += 1


def cases_of(suites, name):
    """The cases of the program `name`. Meson calls their suites PROJECT.NAME.SUITE."""
    return [case for suite in suites
            if suite.get("name", "").partition(".")[2].startswith(name + ".")
            for case in suite.findall("testcase")]


def count_folder(count, folder):
    try:
        text = (folder / "meson-logs/testlog.json").read_text(encoding="utf-8")
        runs = [json.loads(line) for line in text.splitlines()]
        suites = ElementTree.parse(folder / "meson-logs/testlog.junit.xml").getroot().findall("testsuite")
    except (OSError, ValueError, ElementTree.ParseError) as error:
        count.failed.append(f"{folder.name}: no tests were run, or their log cannot be read: {error}")
        return
    if not runs:
        count.failed.append(f"{folder.name}: no tests were run")
    # GoogleTest's programs write NAME.xml: two tests of one name would overwrite each other's.
    for name, times in Counter(run["name"].split(" / ")[-1] for run in runs).items():
        if times > 1:
            count.failed.append(f"{folder.name}: {times} tests are called {name}; their results mix")
    for run in runs:
        count_program(count, folder, run, cases_of(suites, run["name"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failed", action="append", default=[], metavar="TEXT")
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    count = Count()
    count.failed += options.failed
    for folder in options.folders:
        before = Count()
        count_folder(before, folder)
        print(f"{folder.name}: {before.line()}")
        count.passed += before.passed
        count.failed += before.failed
        count.skipped += before.skipped
    for text in count.skipped:
        print(f"skipped  {text}")
    for text in count.failed:
        print(f"FAILED   {text}")
    print(count.line())
    return 1 if count.failed or count.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
