#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds the form of the C++ files: licence line, length, #pragma once, nothing left to do, listed headers, names that
are a file's own, and of kernels that they use no function of <bit> that nvcc makes a constant of.

usage: check_form.py ROOT [--absent HEADER...] --headers HEADER...

HEADER are the headers that the build compiles alone; each header of the libraries must be among them, or
among those of optional parts that are absent from this build.
Prints one line for each offence; returns 1 when there is one.
"""
import argparse
import pathlib
import re
import sys

LIBRARIES = ("engine", "collectives", "strategies", "models")
FOLDERS = LIBRARIES + ("tools", "bench", "test")
LICENCE = "// SPDX-License-Identifier: MIT"
MOST_LINES = 500
LEFT_TO_DO = re.compile(r"\b(TODO|FIXME|XXX)\b")
KERNELS = "engine/cuda/kernels/"
# Their built-ins are unknown to nvcc 13.0 in code for a GPU: std::countr_zero(x) becomes 32, without a warning.
NOT_IN_KERNELS = re.compile(r"\bstd::(countr_\w+|countl_\w+|popcount|bit_width|bit_ceil|bit_floor|has_single_bit)\s*[<(]")

# What a .cpp keeps to itself: names in unnamed namespaces, and of static functions, constants and usings. Unity builds
# put several files of a library into one, where a second such name, or a header's, is an error, or an overload or a
# constant that is silently taken for the other.
IN_UNITY = LIBRARIES + ("tools", "bench")
OWN_LIBRARY = "engine/cpu/"
KERNEL_SOURCE = re.compile(r"^#define HWY_TARGET_INCLUDE\b", re.MULTILINE)   # never joined with others
PROGRAM = re.compile(r"^int main\(", re.MULTILINE)
UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.DOTALL | re.MULTILINE)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{$(.*?)^\}  // namespace \1$", re.DOTALL | re.MULTILINE)
OF_NAMESPACES = re.compile(r"^(?:namespace .*\{|\}  // namespace.*)$", re.MULTILINE)
NO_CODE = re.compile(r'//.*?$|/\*.*?\*/|^ *#.*?$|R"\(.*?\)"|"(?:\\.|[^"\\])*"|' r"'(?:\\[^']+|[^'\\])'",
                     re.DOTALL | re.MULTILINE)
ALIAS = re.compile(r"(?:using|namespace) (?!namespace )(?:\w*::)*(\w+)")
TYPE = re.compile(r"(?:struct|class|union|enum|enum class) (?:alignas\(\) |\[\] )*(\w+)(?= final\b| ?[:{]|$)")
OLD_ENUM = re.compile(r"^enum ((?!class|struct)[^{;]*)\{([^}]*)\}", re.MULTILINE)   # whose values are names beside it
OUTSIDE = re.compile(r"(?:\[\] )*static |using |namespace |const(?:expr)? [^({=]*(?:[{=]|$)")


def check_text(path, text):
    lines = text.splitlines()
    if not lines or lines[0] != LICENCE:
        yield f"{path}:1: the first line is not '{LICENCE}'"
    if len(lines) > MOST_LINES:
        yield f"{path}:{MOST_LINES}: {len(lines)} lines, {MOST_LINES} are the most: split it by subject"
    again = path.endswith("-inl.h")   # included once for each instruction set
    if path.endswith((".h", ".cuh")) and not again and "#pragma once" not in lines:
        yield f"{path}:1: a header without #pragma once"
    for number, line in enumerate(lines, 1):
        left = LEFT_TO_DO.search(line)
        if left:
            yield f"{path}:{number}: {left.group()} is left in the file"
        wrong = NOT_IN_KERNELS.search(line) if path.startswith(KERNELS) else None
        if wrong:
            yield f"{path}:{number}: nvcc makes a constant of {wrong.group()}...): use what grid.cuh offers"


def declarations(text):
    """Those of a namespace, each on one line; of brackets only the two ends are left."""
    text = OLD_ENUM.sub(r"enum \1{}; int \2", NO_CODE.sub(" ", OF_NAMESPACES.sub("", text)))
    left, depth = [], 0
    for piece in re.findall(r"[][(){}]|[^][(){}]+", text):
        depth -= piece in ")]}"
        if depth == 0:
            left.append(piece)
        depth += piece in "([{"
    ended = re.sub(r"\{\}$", "{};", "".join(left), flags=re.MULTILINE)
    return [" ".join(declaration.split()) for declaration in ended.split(";")]


def without_templates(declaration):
    while (less := re.sub(r"<[^<>]*>", " ", declaration)) != declaration:
        declaration = less
    return re.sub(r"^(?:template |requires \w+ |\[\] )*", "", " ".join(declaration.split()))


def names_of(declaration):
    declaration = without_templates(declaration)
    one = ALIAS.match(declaration) or TYPE.match(declaration)
    if one:
        return [one.group(1)]
    names = []
    for declarator in declaration.split(","):
        name = re.search(r"(?:^|[ *&])(\w+)$", re.split(r" ?[({=[]", declarator)[0].rstrip())
        # The first stands behind a type; members that are defined outside of their class have its name in front.
        if not name or (not names and name.start() == 0) or name.group(1) == "operator":
            break
        names.append(name.group(1))
    return names


def named(declared):
    """The names, each with what declares it."""
    return {name: declaration for declaration in declared for name in names_of(declaration)}


def own_names(text):
    own = declarations("".join(UNNAMED.findall(text)))
    own += [one for one in declarations(UNNAMED.sub("", text)) if OUTSIDE.match(without_templates(one))]
    return named(own)


def check_names(texts):
    """`texts`: of the files of one library, or of programs, of which two are never in one."""
    programs = {path for path, text in texts.items() if PROGRAM.search(text)}
    headers = [path for path in texts if path.endswith(".h")]
    seen = {}   # by name: the file, of a header the namespace, the declaration
    for path in headers:
        for namespace, body in NAMESPACE.findall(texts[path]):
            for name, declaration in named(declarations(body)).items():
                seen.setdefault(name, []).append((path, namespace + "::", declaration))
    for path in sorted(set(texts) - set(headers)):
        here = NAMESPACE.search(texts[path])
        for name, declaration in own_names(texts[path]).items():
            for other, namespace, before in seen.setdefault(name, []):
                alike = declaration == before and ALIAS.match(declaration)
                apart = {path, other} <= programs or not f"{here and here.group(1)}::".startswith(namespace)
                if not alike and not apart:
                    yield f"{path}: {name} is a name of {other}, too: unity builds put several files into one"
                    break
            seen[name].append((path, "", declaration))


def check(root, headers, absent=()):
    root = pathlib.Path(root)
    found = set()
    for top in FOLDERS:
        in_unity, own_library = {}, {}
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
                continue
            name = path.relative_to(root).as_posix()
            text = path.read_text(encoding="utf-8")
            yield from check_text(name, text)
            joined = path.suffix == ".h" and not name.endswith("-inl.h") or path.suffix == ".cpp" and not KERNEL_SOURCE.search(text)
            if joined and top in IN_UNITY:
                (own_library if name.startswith(OWN_LIBRARY) else in_unity)[name] = text
            if path.suffix == ".h" and top in LIBRARIES and not name.endswith("-inl.h"):
                found.add(name)
        yield from check_names(in_unity)
        yield from check_names(own_library)
    for name in sorted(found - set(headers) - set(absent)):
        yield f"{name}: is not in `headers` of its meson.build, so nobody compiles it alone"
    for name in sorted((set(headers) | set(absent)) - found):
        yield f"{name}: stands in `headers` of a meson.build and is not there"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root")
    parser.add_argument("--headers", nargs="*", default=[])
    parser.add_argument("--absent", nargs="*", default=[])
    options = parser.parse_args()
    offences = list(check(options.root, options.headers, options.absent))
    print("\n".join(offences) if offences else "every file has the form")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
