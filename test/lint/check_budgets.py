#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints how much code each part has, and holds functions, classes and includes to their limits.

usage: check_budgets.py ROOT

Lines are C++ code without blank lines and comments. A function has at most 80 lines; a class declares at most 30
functions (overrides and the ports below excepted) and 20 data members; no file includes itself
through others. Prints one line for each offence; returns 1 when there is one.
"""
import bisect
import pathlib
import re
import sys

FOLDERS = ("engine", "collectives", "strategies", "models", "tools", "bench", "test")
# Parts and the lines they may have, without features that came later.
PARTS = [
    ("engine", 24500), ("collectives", 12800), ("strategies without servers", 3600), ("servers", 8300),
    ("tools and bench", 6500), ("models", 1000), ("tests", 43000)]
SERVERS = ("strategies/parameter_server/", "strategies/grpc/", "strategies/pmix/", "strategies/session/")
PORTS = {"Ops", "Strategy", "Layer", "Driver"}  # the last: the table of the GPU driver's functions
MOST_LINES, MOST_FUNCTIONS, MOST_DATA = 80, 30, 20

COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#[^\n]*',
                     re.DOTALL | re.MULTILINE)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b")
NAME = re.compile(r"\b(?:class|struct|union)\b(?:\s+alignas\([^)]*\))?\s+(\w+)")
FUNCTION_NAME = re.compile(r"([~\w:]+(?:<[^<>]*>)?|operator[^\w\s(]+)\s*\(")
DIGIT_MARK = re.compile(r"(?<=\d)'(?=\d)")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def blank(match):
    """Keeps line ends, so that numbers of lines stay."""
    return "\n" * match.group().count("\n") if match.group()[0] in "/#R" else '""'


def code_of(text):
    return COMMENT.sub(blank, DIGIT_MARK.sub("", text))


def without_templates(text):
    while (less := re.sub(r"<[^<>{}();]*>", "", text)) != text:
        text = less
    return text


def kind_of(head):
    """What the brace behind this text opens: namespace, class, function or other."""
    head = without_templates(head)
    head = re.sub(r"\btemplate\b|\[\[\w+\]\]|\b(?:public|private|protected)\s*:", " ", head)
    word = SCOPE.search(head)
    outside = head[:head.find("(")] if "(" in head else head
    if word and "=" not in outside and (word.group() == "namespace" or "(" not in re.sub(r"alignas\([^)]*\)", "", head)):
        return "namespace" if word.group() == "namespace" else "enum" if word.group() == "enum" else "class"
    if "(" in head and not re.search(r"=\s*$|\breturn\b", head):
        return "function"
    return "other"


class Scan:
    """Functions with their lines, and classes with their members, of one file."""

    def __init__(self, text):
        code = code_of(text)
        ends = [at for at, letter in enumerate(code) if letter == "\n"]
        self.functions, self.classes = [], []
        stack, head = [], 0
        for match in re.finditer(r"[{};]", code):
            at, letter = match.start(), match.group()
            line = bisect.bisect_left(ends, at) + 1
            inside = any(scope[0] == "function" for scope in stack)
            if letter == ";":
                if stack and stack[-1][0] == "class" and not inside:
                    stack[-1][3].append(code[head:at])
                head = at + 1
            elif letter == "{":
                text_before = code[head:at]
                kind = "other" if inside else kind_of(text_before)
                if kind == "other" and stack and stack[-1][0] in ("class", "value") and not inside:
                    kind = "value"   # in a member's initializer: its declaration goes on behind it
                stack.append((kind, text_before, line, []))
                if kind != "value":
                    head = at + 1
            elif stack:
                kind, before, first, members = stack.pop()
                if kind == "function":
                    name = FUNCTION_NAME.search(without_templates(before))
                    self.functions.append((name.group(1) if name else "?", first, line - first + 1))
                    if stack and stack[-1][0] == "class":
                        stack[-1][3].append(before + "{}")
                elif kind == "class":
                    name = NAME.search(re.sub(r"template\s*<[^<>]*>", "", before))
                    self.classes.append((name.group(1) if name else "?", first, members))
                if kind != "value":
                    head = at + 1


def counts(members):
    """How many functions that override nothing, and how many data members."""
    functions = data = 0
    for member in members:
        member = re.sub(r"\b(?:public|private|protected)\s*:", " ", without_templates(member)).strip()
        if not member or re.match(r"(?:using|friend|typedef|static_assert|template\s+friend|enum|struct|class)\b", member):
            continue
        outside = re.split(r"[={]", member, maxsplit=1)[0]
        if "(" in outside and not re.match(r"(?:alignas\([^)]*\)\s*)[^()]*$", outside):
            functions += not re.search(r"\b(?:override|final)\b|=\s*delete", member)
        elif not re.match(r"(?:static\s+)?constexpr\b|static\s+const", member):
            while (less := re.sub(r"\{[^{}]*\}|\([^()]*\)", "", member)) != member:
                member = less
            data += 1 + member.count(",")
    return functions, data


def part_of(path):
    if path.startswith("strategies/"):
        return "servers" if path.startswith(SERVERS) else "strategies without servers"
    top = path.split("/")[0]
    return {"tools": "tools and bench", "bench": "tools and bench", "test": "tests"}.get(top, top)


def circles(includes):
    """Each circle of files that include each other, as one line."""
    state, found, path = {}, [], []

    def visit(name):
        state[name] = 1
        path.append(name)
        for other in includes.get(name, ()):
            if state.get(other) == 1:
                found.append(" -> ".join(path[path.index(other):] + [other]))
            elif other not in state:
                visit(other)
        path.pop()
        state[name] = 2

    for name in sorted(includes):
        if name not in state:
            visit(name)
    return found


def check(root):
    root = pathlib.Path(root)
    lines, offences, includes = dict.fromkeys((part for part, _ in PARTS), 0), [], {}
    for top in FOLDERS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
                continue
            name = path.relative_to(root).as_posix()
            text = path.read_text(encoding="utf-8")
            lines[part_of(name)] += sum(1 for line in text.splitlines() if not re.match(r"\s*(?://.*)?$", line))
            if not name.endswith("-inl.h"):
                includes[name] = [other for other in INCLUDE.findall(text) if (root / other).exists() and other != name]
            if top == "test":
                continue
            scan = Scan(text)
            for function, line, length in scan.functions:
                if length > MOST_LINES:
                    offences.append(f"{name}:{line}: {function} has {length} lines, {MOST_LINES} are the most")
            for owner, line, members in scan.classes:
                functions, data = counts(members)
                if functions > MOST_FUNCTIONS and owner not in PORTS:
                    offences.append(f"{name}:{line}: {owner} has {functions} functions, {MOST_FUNCTIONS} are the most")
                if data > MOST_DATA:
                    offences.append(f"{name}:{line}: {owner} has {data} data members, {MOST_DATA} are the most")
    offences += [f"{circle}: includes go in a circle" for circle in circles(includes)]
    return lines, offences


def main(arguments):
    if len(arguments) != 1 or not (pathlib.Path(arguments[0]) / "engine").is_dir():
        print("usage: check_budgets.py ROOT (the folder that holds engine/)")
        return 2
    lines, offences = check(arguments[0])
    for part, most in PARTS:
        print(f"{part:28} {lines[part]:7,} lines of {most:7,}")
    print("\n".join(offences) if offences else "all functions, classes and includes keep their limits")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
