#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `meson install` installs, as people use it: moved to a folder that the build knows nothing of, found by
pkg-config and by CMake, with the commands that the README shows.

usage: install_test.py SOURCE BUILD COMPILER... [-- NAMES OF TESTS]
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE, BUILD, COMPILER = pathlib.Path(), pathlib.Path(), []
PATIENCE = 300  # seconds for anything; only a defect takes so long
OWN = ("own_layer", "own_loss", "own_dataset")   # programs that train
OTHERS = ("own_loop", "hello", "variables")


def run(command, **more):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, **more)


def section_blocks(language):
    """The fenced blocks of one language in the section on installing of tools' README."""
    text = (SOURCE / "tools/README.md").read_text(encoding="utf-8")
    section = re.search(r"^## Installing and linking\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)[1]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def install(folder):
    """Installs below `folder`. `ninja uninstall` reads a log that this would replace: it is put back."""
    log = BUILD / "meson-logs/install-log.txt"
    kept = log.read_bytes() if log.exists() else None
    try:
        return run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", folder])
    finally:
        if kept is not None:
            log.write_bytes(kept)
        elif log.exists():
            log.unlink()


class Installed(unittest.TestCase):
    folder = None   # installed once, for all classes

    @classmethod
    def setUpClass(cls):
        if Installed.folder is None:
            Installed.folder = tempfile.TemporaryDirectory()
            unittest.addModuleCleanup(Installed.folder.cleanup)
            done = install(pathlib.Path(Installed.folder.name) / "there")
            if done.returncode != 0:
                raise RuntimeError(done.stdout + done.stderr)
        cls.top = pathlib.Path(Installed.folder.name)
        cls.program = next(cls.top.rglob("bin/lockstep"))
        cls.prefix = cls.program.parent.parent
        cls.include = next(cls.prefix.rglob("lockstep/lockstep.h")).parent.parent
        cls.libraries = next(cls.prefix.rglob("liblockstep.so")).parent
        cls.environment = {**os.environ, "PKG_CONFIG_PATH": str(cls.libraries / "pkgconfig"),
                           "LD_LIBRARY_PATH": str(cls.libraries), "CMAKE_PREFIX_PATH": str(cls.prefix)}
        cls.version = re.search(r"^  version: '(.*)',$", (SOURCE / "meson.build").read_text(), re.MULTILINE)[1]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=self.top)
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def good(self, command, **more):
        done = run(command, **{"env": self.environment, "cwd": self.work, **more})
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def flags(self, *arguments):
        return self.good(["pkg-config", *arguments, "lockstep"]).split()

    def trains(self, program, **more):
        self.assertRegex(self.good([program], **more), r"accuracy [01]\.\d{4}\n")

    def series(self):
        """Of the version, what stays the same as long as programs need not be built again."""
        return re.match(r"(0\.)?[0-9]+", self.version)[0]

    def headers(self):
        return sorted(path for path in (self.include / "lockstep").rglob("*") if path.is_file())


class Files(Installed):
    def test_programs_libraries_headers_and_nothing_else(self):
        self.assertEqual([path.name for path in self.program.parent.iterdir()], ["lockstep"])
        self.assertEqual(sorted(path.name for path in self.libraries.iterdir() if not path.is_dir()),
                         ["liblockstep.a", "liblockstep.so", f"liblockstep.so.{self.series()}", f"liblockstep.so.{self.version}"])
        self.assertEqual([path.name for path in self.include.iterdir()], ["lockstep"])
        self.assertEqual({path.suffix for path in self.headers()}, {".h"})
        others = [path for path in (self.top / "there").rglob("*") if path.is_file()
                  and not path.is_relative_to(self.libraries) and not path.is_relative_to(self.include)]
        texts = {"share/man/man1/lockstep.1", "share/bash-completion/completions/lockstep", "share/zsh/site-functions/_lockstep",
                 "share/fish/vendor_completions.d/lockstep.fish"}
        self.assertEqual({path.relative_to(self.prefix).as_posix() for path in others}, {"bin/lockstep", *texts})
        for text in texts:
            self.assertIn("--model" if "man" not in text else ".TH LOCKSTEP 1", (self.prefix / text).read_text().replace("-l model", "--model"))

    def test_one_version_everywhere(self):
        self.assertEqual(self.good([self.program, "--version"]), f"lockstep {self.version}\n")
        self.assertEqual(self.flags("--modversion"), [self.version])
        dynamic = self.good(["readelf", "-d", self.libraries / "liblockstep.so"])
        soname = re.search(r"\(SONAME\).*\[(.*)\]", dynamic)[1]
        self.assertEqual(soname, "liblockstep.so." + self.series())
        self.assertTrue((self.libraries / soname).exists())
        changes = (SOURCE / "tools/CHANGELOG.md").read_text(encoding="utf-8")
        self.assertEqual(re.search(r"^## (\S+)", changes, re.MULTILINE)[1], self.version)

    def test_nothing_names_the_folders_of_the_build(self):
        texts = [*self.headers(), *self.libraries.rglob("*.pc"), *self.libraries.rglob("*.cmake")]
        self.assertGreater(len(texts), 3)
        for path in texts:
            for place in (SOURCE, BUILD, self.top):
                self.assertNotIn(str(place), path.read_text(encoding="utf-8"), path)


class Configured(unittest.TestCase):
    """Its first commands, in a folder that is not there yet and in one that was built for another prefix."""

    def prefix_after(self, folder, prefix):
        lines = [line.split("#")[0].split() for block in section_blocks("sh") for line in block.splitlines()]
        lines = [words for words in lines if words[:1] == ["meson"] and "install" not in words]
        self.assertTrue(lines)
        text = " ".join(word for words in lines for word in words)
        self.assertEqual(text.count("--prefix=/usr/local"), 1, text)
        for words in lines:
            self.assertEqual(words.count("build"), 1, words)
            command = [{"build": folder, "--prefix=/usr/local": f"--prefix={prefix}"}.get(word, word) for word in words]
            done = run(command, cwd=SOURCE, env={**os.environ, "CXX": " ".join(COMPILER)})
            self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        done = run(["meson", "introspect", "--buildoptions", folder])
        return next(option["value"] for option in json.loads(done.stdout) if option["name"] == "prefix")

    def test_the_readmes_commands_set_the_prefix_of_a_new_folder_and_of_an_old_one(self):
        with tempfile.TemporaryDirectory() as top:
            for prefix in ("/usr/local", "/opt/lockstep"):
                self.assertEqual(self.prefix_after(pathlib.Path(top) / "build", prefix), prefix)


class Headers(Installed):
    def test_what_they_include_is_installed(self):
        for path in self.headers():
            for name in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
                self.assertTrue(name.startswith("lockstep/"), f"{path}: {name}")
                self.assertTrue((self.include / name).is_file(), f"{path}: {name}")

    def test_all_compile_together(self):
        """That each compiles alone holds for the sources (test/lint/check_headers.py)."""
        names = [path.relative_to(self.include).as_posix() for path in self.headers()]
        (self.work / "all.cpp").write_text("".join(f"#include <{name}>\n" for name in names))
        self.good([*COMPILER, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *self.flags("--cflags"), "all.cpp"])

    def test_a_folder_of_the_user_called_engine_is_his(self):
        (self.work / "engine/base").mkdir(parents=True)
        (self.work / "engine/base/error.h").write_text("struct Piston {};\n")
        (self.work / "car.cpp").write_text('#include <lockstep/lockstep.h>\n#include "engine/base/error.h"\n'
                                           "Piston piston;\nlockstep::Shape shape;\n")
        for order in (["-I."], []):
            flags = [*order, *self.flags("--cflags"), "-I."]
            self.good([*COMPILER, "-std=c++20", "-fsyntax-only", *flags, "car.cpp"])


# What blocks of READMEs that are statements find around them, by a word of theirs: arguments of a function.
AROUND = {
    "Buckets": "int argc, char** argv, std::vector<float>& weights, float* w1, float* w2, std::size_t i",
}
# Its blocks are parts of programs of test/face: test/face/shown.py compares them, and CMake compiles the programs.
SHOWN = pathlib.Path("engine/README.md")
FUNCTION = re.compile(r"^\S+ \w+\(.*\) (?:try )?\{$", re.MULTILINE)   # at the beginning of a line: not a statement
FOREIGN = re.compile(r"^\s*#\s*include\s*<([^>]*/[^>]*|[^>]*\.h)>", re.MULTILINE)


def readmes():
    """The READMEs of the project: a build folder, or what is installed in one, has others."""
    folders = ("engine", "collectives", "strategies", "models", "tools", "test", "bench")
    return [SOURCE / "README.md", *(path for folder in folders for path in sorted((SOURCE / folder).glob("**/README.md")))]


def readme_blocks():
    for path in readmes():
        for block in re.findall(r"^```(?:cpp|c\+\+)\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield path.relative_to(SOURCE), block


class Readmes(Installed):
    def unit(self, blocks):
        """One translation unit: blocks of one README may use each other's classes."""
        includes, text = [], ""
        for number, (path, block) in enumerate(blocks):
            includes += [re.sub(r'"(.*)"', r"<lockstep/\1>", line) for line in block.splitlines() if line.startswith("#include")]
            code = "\n".join(line for line in block.splitlines() if not line.startswith("#include"))
            code = code.replace("for (...)", "for (;;)")
            declared, between, rest = code.partition("\n...\n") if code.lstrip().startswith("class ") else ("", "", code)
            rest = re.sub(r"^\s*\.\.\.(\s+//.*)?$", "", rest, flags=re.MULTILINE)
            if code.lstrip().startswith("namespace "):
                text += code
                continue
            if not FUNCTION.search(rest):
                around = next((arguments for word, arguments in AROUND.items() if word in rest), "")
                rest = f"[[maybe_unused]] void block_{number}({around}) {{\n{rest}\n}}"
            text += f'\nnamespace {path.parent.name or "top"}_readme {{\n{declared}\n{rest}\n}}\n'
        standard = [f"#include <{name}>" for name in ("algorithm", "memory", "span", "string", "vector", "lockstep/lockstep.h")]
        return "\n".join([*standard, *includes]) + text

    def test_their_blocks_compile(self):
        blocks = [(path, block) for path, block in readme_blocks() if path != SHOWN]
        self.assertGreaterEqual(len(blocks), 6)
        (self.work / "readmes.cpp").write_text(self.unit(blocks))
        flags = ["-std=c++20", "-fsyntax-only", *self.flags("--cflags")]
        self.good([*COMPILER, *flags, "readmes.cpp"])

    def test_headers_need_only_what_readers_are_told(self):
        for path in self.headers():
            foreign = [name for name in FOREIGN.findall(path.read_text(encoding="utf-8")) if not name.startswith("fmt/")]
            self.assertEqual(foreign, [], path)


class PkgConfig(Installed):
    def compile(self, source, *words):
        self.good([*COMPILER, "-std=c++20", *self.flags("--cflags"), source, "-o", "program", *words])
        return self.work / "program"

    def test_the_readmes_command_builds_the_readmes_program(self):
        shutil.copy(SOURCE / "test/face/mirrored.cpp", self.work / "program.cpp")
        lines = [line for block in section_blocks("sh") for line in block.splitlines() if line.startswith("c++ ")]
        self.assertEqual(len(lines), 1, lines)
        self.good(["sh", "-c", lines[0].replace("c++ ", " ".join(COMPILER) + " ", 1)])
        self.trains(self.work / "program")

    def test_the_static_library_is_whole(self):
        wanted = ["-l:liblockstep.a" if word == "-llockstep" else word for word in self.flags("--libs", "--static")]
        self.assertIn("-l:liblockstep.a", wanted)
        program = self.compile(SOURCE / "test/face/own_dataset.cpp", *wanted)
        self.assertNotIn("liblockstep", self.good(["readelf", "-d", program]))
        self.trains(program, env={**os.environ, "LD_LIBRARY_PATH": ""})


@unittest.skipUnless(shutil.which("cmake"), "cmake is missing")
class CMake(Installed):
    def test_the_readmes_lines_build_programs(self):
        blocks = section_blocks("cmake")
        self.assertEqual(len(blocks), 1)
        text = blocks[0] + 'file(WRITE "${CMAKE_BINARY_DIR}/version" "${lockstep_VERSION}")\n'
        shutil.copy(SOURCE / "test/face/mirrored.cpp", self.work / "program.cpp")
        programs = OWN + tuple(name for name in OTHERS if name != "variables" or self.serves())
        for name in programs:
            shutil.copy(SOURCE / f"test/face/{name}.cpp", self.work)
            text += f"add_executable({name} {name}.cpp)\ntarget_link_libraries({name} PRIVATE lockstep::lockstep)\n"
        (self.work / "CMakeLists.txt").write_text(text)
        environment = {**self.environment, "CXX": COMPILER[-1], "LD_LIBRARY_PATH": ""}
        self.good(["cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=Debug"], env=environment)
        self.assertEqual((self.work / "build/version").read_text(), self.version)
        self.good(["cmake", "--build", "build", "-j2"], env=environment)
        for name in ("program", *OWN):
            self.trains(self.work / "build" / name, env=environment)
        self.assertIn("Hello from rank 0 of 1", self.good([self.work / "build/hello"], env=environment))
        self.assertEqual(self.good([self.work / "build/own_loop"], env=environment).count("largest error 0.0"), 2)
        if "variables" in programs:
            self.count_runs(self.work / "build/variables", environment)

    def serves(self):
        return "gRPC" in self.good([self.program, "doctor"]) and "absent gRPC" not in self.good([self.program, "doctor"])

    def count_runs(self, program, environment):
        """Three clients of one server, one after the other."""
        server = subprocess.Popen([self.program, "serve", "--json"], env=self.environment, stdout=subprocess.PIPE, text=True)
        try:
            address = json.loads(server.stdout.readline())["address"]
            for run_number in (1, 2, 3):
                self.assertEqual(self.good([program, address], env=environment), f"run {run_number}\n")
        finally:
            server.kill()
            server.communicate(timeout=PATIENCE)

    def test_a_version_fits_its_series_alone(self):
        template = (SOURCE / "tools/install/lockstepConfigVersion.cmake.in").read_text(encoding="utf-8")
        rows = {"0.3.2": {"0.3": True, "0.3.1": True, "0.3.2": True, "0.3.3": False, "0.2": False, "0.4": False,
                          "0.30": False, "0": False, "1": False, "3": False},
                "2.4.1": {"2": True, "2.0.7": True, "2.4.1": True, "2.4.2": False, "2.5": False, "1.9": False,
                          "3": False, "24": False, "0.2": False}}
        for version, questions in rows.items():
            (self.work / "version.cmake").write_text(template.replace("@VERSION@", version))
            for asked, fits in questions.items():
                (self.work / "ask.cmake").write_text(f'set(PACKAGE_FIND_VERSION "{asked}")\n'
                                                     'include("${CMAKE_CURRENT_LIST_DIR}/version.cmake")\n'
                                                     'message(STATUS "fits ${PACKAGE_VERSION_COMPATIBLE}")\n')
                with self.subTest(version=version, asked=asked):
                    self.assertIn(f"fits {str(fits).upper()}\n", self.good(["cmake", "-P", "ask.cmake"]))


def main():
    global SOURCE, BUILD, COMPILER
    arguments, names = sys.argv[1:], []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, names = arguments[:at], arguments[at + 1:]
    SOURCE, BUILD = (pathlib.Path(path).resolve() for path in arguments[:2])
    COMPILER = arguments[2:]
    missing = [name for name in ("meson", "pkg-config", "readelf") if not shutil.which(name)]
    if missing:
        print(f"what is installed is tried with {', '.join(missing)}: not found")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *names], verbosity=2)


if __name__ == "__main__":
    main()
