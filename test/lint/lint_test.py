#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The lints notice what they are there for: each gets a broken snippet, and a good one.

usage: lint_test.py ROOT -- COMPILER...     (the command that compiles C++, without a file)
"""
import importlib.util
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
COMPILER = sys.argv[3:]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check_includes = load(ROOT / "tools/check_includes.py")
check_budgets = load(ROOT / "test/lint/check_budgets.py")
check_form = load(ROOT / "test/lint/check_form.py")
check_format = load(ROOT / "test/lint/check_format.py")
check_headers = load(ROOT / "test/lint/check_headers.py")
check_prose = load(ROOT / "test/lint/check_prose.py")


class InTree(unittest.TestCase):
    """A test with a small tree of its own."""

    def setUp(self):
        self.empty()

    def empty(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, *lines):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text("".join(line + "\n" for line in lines))


class Budgets(InTree):
    def offences(self, path, *lines):
        self.write(path, *lines)
        return check_budgets.check(self.root)[1]

    def test_a_function_of_81_lines_is_noticed_and_one_of_80_is_not(self):
        for calls, noticed in ((78, False), (79, True)):
            body = ["  call({1, 2});  // }"] * calls
            offences = self.offences("engine/nn/a.cpp", "namespace a {", "int one(const char* x = \"{\") {", *body, "}", "}")
            self.assertEqual([f"engine/nn/a.cpp:2: one has {calls + 2} lines, 80 are the most"] if noticed else [], offences)

    def test_a_class_of_31_functions_is_noticed(self):
        functions = [f"  int f{i}(int a = {{}}) const {{ return a; }}" for i in range(15)] + [f"  void g{i}();" for i in range(15)]
        members = ["  void h() override;", "  int x_ = 0;", "  static constexpr int kX = 1;", "  using Y = int;"]
        self.assertEqual(self.offences("engine/nn/a.h", "class A {", *functions, *members, "};"), [])
        self.assertEqual(self.offences("engine/nn/a.h", "class A {", *functions, "  void more();", *members, "};"),
                         ["engine/nn/a.h:1: A has 31 functions, 30 are the most"])

    def test_a_class_of_21_data_members_is_noticed(self):
        members = [f"  std::map<int, int> m{i} = {{{{1, 2}}}};" for i in range(18)]
        self.assertEqual(self.offences("engine/nn/a.h", "struct A {", *members, "  int x = 0, y = 0;", "};"), [])
        self.assertEqual(self.offences("engine/nn/a.h", "struct A {", *members, "  int x = 0, y = 0;", "  int z;", "};"),
                         ["engine/nn/a.h:1: A has 21 data members, 20 are the most"])

    def test_includes_in_a_circle_are_noticed(self):
        self.write("engine/nn/b.h", '#include "engine/nn/c.h"')
        self.write("engine/nn/c.h", '#include "engine/nn/a.h"')
        offences = self.offences("engine/nn/a.h", '#include "engine/nn/b.h"')
        self.assertEqual(len(offences), 1, offences)
        self.assertIn("go in a circle", offences[0])


class Prose(InTree):
    def offences(self, *lines, path="engine/nn/a.h"):
        self.write(path, *lines)
        return check_prose.check(self.root)

    def test_fragments_are_noticed_and_sentences_are_not(self):
        for comment, target, noticed in (
                ("Of every wait from now on; any thread.", "void set_deadline(int ms);", True),
                ("Who died does not come here.", "void leave();", True),
                ("The bytes of a message as it travels.", "std::size_t bytes(int message);", True),
                ("Whether the plan of a rank that waits is done.", "bool done() const;", True),
                ("Returns the bytes of a message as it travels.", "std::size_t bytes(int message);", False),
                ("If a rank waits, its deadline counts.", "void wait();", False),
                ("Ranks of a host share memory.", "class Arena {", False),
                ("Bytes of a cache line.", "constexpr int kLine = 64;", False)):
            _, fragments, _ = self.offences(f"// {comment}", target)
            self.assertEqual(len(fragments), int(noticed), comment)

    def test_long_comments_are_noticed(self):
        for lines, noticed in ((15, 0), (16, 1)):
            _, _, long = self.offences("// SPDX-License-Identifier: MIT", *["// It is."] * lines, "#pragma once")
            self.assertEqual(len(long), noticed)
        for words, noticed in ((8, 0), (9, 1)):
            _, _, long = self.offences("int x = 0;  // " + "word " * words)
            self.assertEqual(len(long), noticed)

    def test_a_readme_is_a_page(self):
        for path, lines, text, noticed in (
                ("models/README.md", 120, "It is.", 0), ("models/README.md", 121, "It is.", 1), ("README.md", 150, "It is.", 0),
                ("README.md", 151, "It is.", 1), ("models/README.md", 1, "x" * 100, 0), ("models/README.md", 1, "x" * 101, 1),
                ("models/README.md", 120, "a b " * 25, 0)):
            self.write("README.md", "# It is")
            self.write("models/README.md", "# It is")
            self.write(path, *[text] * lines)
            self.assertEqual(len(check_prose.check_pages(self.root)[1]), noticed, (path, lines))
        for folder in ("engine", "collectives", "strategies", "models"):
            self.write(f"{folder}/README.md", *["a b " * 25] * 120)
        words, long = check_prose.check_pages(self.root)
        self.assertEqual((words > 12000, long), (True, [f"all READMEs: {words} words of 12000"]))


class Includes(InTree):
    def offences(self, path, *lines):
        self.write(path, *lines)
        return check_includes.check(self.root)

    def refused(self, path, line):
        offences = self.offences(path, "// comment", line)
        self.assertEqual(len(offences), 1, offences)
        self.assertTrue(offences[0].startswith(f"{path}:2: "), offences)

    def allowed(self, path, line):
        self.assertEqual(self.offences(path, line), [])

    def test_each_row_may_include_what_stands_below_it(self):
        for path, header in [
                ("engine/nn/a.h", "engine/ops/ops.h"),
                ("engine/nn/a.h", "engine/nn/b.h"),
                ("engine/runtime/a.cpp", "engine/cpu/b.h"),
                ("engine/train/a.cpp", "engine/data/b.h"),
                ("engine/train/a.cpp", "engine/checkpoint/b.h"),
                ("collectives/plan/a.cpp", "engine/ops/ops.h"),
                ("collectives/run/a.cpp", "collectives/plan/plan.h"),
                ("collectives/cost/a.cpp", "collectives/topology/b.h"),
                ("collectives/hwloc/a.cpp", "collectives/topology/b.h"),
                ("collectives/tcp/a.cpp", "collectives/run/transport.h"),
                ("collectives/job/a.cpp", "collectives/tcp/b.h"),
                ("collectives/communicator/a.cpp", "collectives/job/b.h"),
                ("strategies/synchronous/a.cpp", "collectives/job/b.h"),
                ("strategies/session/a.cpp", "collectives/mpi/b.h"),
                ("strategies/session/a.cpp", "engine/cpu/b.h"),
                ("strategies/session/a.cpp", "strategies/grpc/b.h"),
                ("strategies/parameter_server/worker/a.cpp", "strategies/parameter_server/server/b.h"),
                ("strategies/parameter_server/worker/a.cpp", "strategies/parameter_server/rpc/b.pb.h"),
                ("strategies/grpc/a.cpp", "strategies/parameter_server/rpc/b.h"),
                ("models/a.cpp", "engine/nn/b.h"),
                ("tools/a.cpp", "models/b.h"),
                ("test/models/a.cpp", "tools/b.h")]:
            with self.subTest(path=path, header=header):
                self.empty()
                self.allowed(path, f'#include "{header}"')

    def test_nobody_includes_what_stands_above_it(self):
        for path, header in [
                ("engine/base/a.h", "engine/tensor/b.h"),
                ("engine/tensor/a.h", "engine/ops/b.h"),
                ("engine/nn/a.h", "collectives/plan/plan.h"),
                ("engine/nn/a.h", "engine/cpu/b.h"),
                ("engine/data/a.h", "engine/ops/b.h"),
                ("engine/train/a.cpp", "engine/runtime/b.h"),
                ("engine/train/a.cpp", "engine/reference/b.h"),
                ("engine/checkpoint/a.h", "engine/train/b.h"),
                ("engine/report/a.h", "engine/checkpoint/b.h"),
                ("collectives/plan/a.cpp", "engine/nn/b.h"),
                ("collectives/run/a.cpp", "collectives/algorithms/b.h"),
                ("collectives/run/a.cpp", "collectives/memory/b.h"),
                ("collectives/cost/a.cpp", "collectives/run/b.h"),
                ("collectives/topology/a.cpp", "collectives/hwloc/b.h"),
                ("collectives/memory/a.cpp", "collectives/tcp/b.h"),
                ("collectives/tcp/a.cpp", "collectives/mpi/b.h"),
                ("collectives/job/a.cpp", "collectives/communicator/b.h"),
                ("collectives/job/a.cpp", "strategies/synchronous/b.h"),
                ("strategies/synchronous/a.cpp", "engine/cpu/b.h"),
                ("strategies/synchronous/a.cpp", "collectives/mpi/b.h"),
                ("strategies/synchronous/a.cpp", "models/b.h"),
                ("strategies/synchronous/a.cpp", "strategies/parameter_server/worker/b.h"),
                ("strategies/session/a.cpp", "models/b.h"),
                ("strategies/session/a.cpp", "strategies/parameter_server/rpc/b.pb.h"),
                ("strategies/parameter_server/rpc/a.cpp", "strategies/parameter_server/server/b.h"),
                ("strategies/parameter_server/worker/a.cpp", "strategies/grpc/b.h"),
                ("strategies/parameter_server/worker/a.cpp", "collectives/mpi/b.h"),
                ("models/a.cpp", "strategies/b.h"),
                ("models/a.cpp", "tools/b.h"),
                ("tools/a.cpp", "test/support/b.h"),
                ("engine/nn/a.h", "engine/secret/b.h")]:
            with self.subTest(path=path, header=header):
                self.empty()
                self.refused(path, f'#include "{header}"')

    def test_spelling_hides_nothing(self):
        self.refused("engine/base/a.h", '  #  include   "collectives/plan/plan.h"  // why')
        self.refused("engine/base/a.h", "#include <engine/base/b.h>")
        self.refused("engine/base/a.h", '#include "b.h"')
        self.refused("engine/base/a.h", "#include HEADER")

    def test_foreign_headers_stay_in_their_folders(self):
        for header, home in [("mpi.h", "collectives/mpi"), ("oneapi/dnnl/dnnl.hpp", "engine/cpu"),
                             ("Eigen/Core", "engine/cpu"), ("hwloc.h", "collectives/hwloc"),
                             ("grpcpp/grpcpp.h", "strategies/grpc"), ("openssl/pem.h", "strategies/grpc"),
                             ("openssl/hmac.h", "collectives/tcp"),
                             ("CLI/CLI.hpp", "tools")]:
            with self.subTest(header=header):
                self.empty()
                self.refused("engine/nn/a.h", f"#include <{header}>")
                self.empty()
                self.allowed(f"{home}/a.cpp", f"#include <{header}>")
        self.empty()
        self.refused("engine/nn/a.cpp", "#include <gtest/gtest.h>")

    def test_the_idiom_of_highway_is_the_one_exception(self):
        self.allowed("engine/cpu/a.cpp", '#define HWY_TARGET_INCLUDE "engine/cpu/a.cpp"')
        self.allowed("engine/cpu/a.cpp", "#if HWY_ONCE")
        self.allowed("engine/cpu/a-inl.h", "#define LOCKSTEP_ENGINE_CPU_A_INL_H_")
        for path, line in [("engine/cpu/a.cpp", '#define HWY_TARGET_INCLUDE "engine/cpu/b.cpp"'),
                           ("engine/cpu/a.cpp", "#if HWY_ONCE && 1"),
                           ("engine/cpu/b-inl.h", "#define LOCKSTEP_ENGINE_CPU_A_INL_H_"),
                           ("engine/nn/a.cpp", "#if HWY_ONCE")]:
            self.empty()
            self.refused(path, line)
        self.empty()
        self.refused("engine/nn/a.cpp", "#include <hwy/highway.h>")

    def test_no_macros_and_no_conditionals_anywhere(self):
        for line in ["#define A 1", "#if 1", "# ifdef A", "#ifndef A", "%: define A", "#endif",
                     "#undef A", "#include_next <vector>"]:
            for path in ["engine/base/a.h", "test/a_test.cpp", "tools/a.cpp", "bench/a.cpp"]:
                with self.subTest(line=line, path=path):
                    self.empty()
                    self.refused(path, line)
        self.empty()
        self.allowed("engine/base/a.h", "#pragma once")

    def test_a_circle_in_the_table_is_noticed(self):
        before = check_includes.MAY["engine/base"]
        check_includes.MAY["engine/base"] = ["engine/nn"]
        try:
            self.assertEqual(len(list(check_includes.check_table())), 1)
        finally:
            check_includes.MAY["engine/base"] = before


class Form(InTree):
    LICENCE = "// SPDX-License-Identifier: MIT"

    def offences(self, headers=()):
        return list(check_form.check(self.root, headers))

    def test_a_good_file_passes(self):
        self.write("engine/base/a.h", self.LICENCE, "#pragma once")
        self.write("engine/base/a.cpp", self.LICENCE, *["int x;"] * 499)
        self.assertEqual(self.offences(["engine/base/a.h"]), [])

    def test_headers_of_absent_parts_need_not_be_compiled_but_must_be_there(self):
        self.write("engine/cuda/a.h", self.LICENCE, "#pragma once")
        self.assertEqual(list(check_form.check(self.root, [], ["engine/cuda/a.h"])), [])
        self.assertEqual(len(list(check_form.check(self.root, [], ["engine/cuda/a.h", "engine/cuda/b.h"]))), 1)

    def test_broken_files_are_noticed(self):
        for path, lines in [("engine/a.cpp", ["int x;"]), ("engine/a.cpp", []),
                            ("test/a.cpp", ["", self.LICENCE]),
                            ("engine/a.cpp", [self.LICENCE] + ["int x;"] * 500),
                            ("test/support/a.h", [self.LICENCE]),
                            ("engine/cuda/kernels/a.cuh", [self.LICENCE, "#pragma once", "std::countr_zero(x)"]),
                            ("tools/a.cpp", [self.LICENCE, "// TO" "DO: later"])]:
            with self.subTest(path=path, lines=len(lines)):
                self.empty()
                self.write(path, *lines)
                self.assertEqual(len(self.offences()), 1)

    def test_headers_and_their_list_agree(self):
        self.write("models/a.h", self.LICENCE, "#pragma once")
        self.assertEqual(len(self.offences([])), 1)
        self.assertEqual(len(self.offences(["models/a.h", "models/b.h"])), 1)


class Names(InTree):
    def unnamed(self, path, *lines, before=()):
        self.write(path, Form.LICENCE, *before, "namespace lockstep {", "namespace {", "", *lines, "",
                   "}  // namespace", "}  // namespace lockstep")

    def offences(self):
        return list(check_form.check(self.root, []))

    def test_a_name_that_two_files_keep_to_themselves_is_noticed(self):
        for name, one, other in [
                ("median", ["double median(std::vector<double> values) {", "  return values[0];", "}"],
                 ["int median(int a, int b) {", "  return a;", "}"]),
                ("read", ["template <class T, class U = std::map<int, T>>", "T read(const U& from) {", "}"],
                 ["[[noreturn]] void read() {", "}"]),
                ("Call", ["class Call;"], ["struct Call final : Base<int> {", "  int x = 1;", "};"]),
                ("Kind", ["enum class Kind : std::uint8_t { kOne, kTwo };"], ["using Kind = Probe::Kind;"]),
                ("kFew", ["enum Count : int { kNone, kFew = 3 };"], ["constexpr int kFew = 2;"]),
                ("Line", ["struct alignas(64) Line {", "};"], ["using engine::Line;"]),
                ("kLeft", ["constexpr double kWidth = sum(1, 2), kLeft = 70;"], ["constexpr int kLeft{90};"]),
                ("kNames", ["const std::array<const char*, 2> kNames = {", "    \"a;\", // {", "};"],
                 ["constexpr const char* kNames[] = {\"a\"};"]),
                ("files", ["std::map<std::string, int> files;"], ["namespace files = std::filesystem;"])]:
            with self.subTest(name=name):
                self.empty()
                self.unnamed("engine/nn/a.cpp", *one)
                self.unnamed("engine/nn/c.cpp", "int other = 1;")
                self.assertEqual(self.offences(), [])
                self.unnamed("engine/train/b.cpp", "int more() {", "  return 1'000;", "}", *other)
                found = self.offences()
                self.assertEqual(len(found), 1, found)
                for part in ["engine/nn/a.cpp", "engine/train/b.cpp", f" {name} "]:
                    self.assertIn(part, found[0])

    def test_a_name_of_a_header_of_the_namespace_or_around_it_is_noticed(self):
        for namespace, offences in [("lockstep", 1), ("lockstep::engine", 1), ("lockstep::engine::cuda", 0)]:
            with self.subTest(namespace=namespace):
                self.empty()
                self.write("engine/nn/a.h", Form.LICENCE, "#pragma once", f"namespace {namespace} {{",
                           "int rows_of(const Shape& shape);", f"}}  // namespace {namespace}")
                self.write("engine/nn/b.cpp", Form.LICENCE, "namespace lockstep::engine {", "namespace {",
                           "template <class Head>", "int rows_of(const Head& head) {", "}", "}  // namespace",
                           "}  // namespace lockstep::engine")
                self.assertEqual(len(list(check_form.check(self.root, ["engine/nn/a.h"]))), offences)

    def test_static_functions_and_constants_outside_are_noticed(self):
        for line in ["static int one(int x) { return x; }", "constexpr int one = 1;", "using one = int;"]:
            with self.subTest(line=line):
                self.empty()
                self.unnamed("tools/a.cpp", "int one = 1;")
                self.unnamed("tools/bench/b.cpp", "int two = 1;", before=[line])
                self.assertEqual(len(self.offences()), 1)

    def test_what_is_one_or_never_in_one_file_passes(self):
        self.unnamed("engine/nn/a.cpp", "int one = 1;", "using engine::Code;", "namespace fs = std::filesystem;",
                     "class Own {", "  int x() const;", "};", "int Own::x() const {", "  return 1;", "}")
        self.unnamed("collectives/a.cpp", "int one = 1;")
        self.unnamed("engine/cpu/a.cpp", "int one = 1;")
        self.unnamed("engine/cpu/b.cpp", "int one = 1;", before=['#define HWY_TARGET_INCLUDE "engine/cpu/b.cpp"'])
        self.unnamed("engine/train/a.cpp", "using engine::Code;", "namespace fs = std::filesystem;", "int x(int one) {",
                     "  int Own = 1;", "  return one + Own;", "}", "enum class Way { one };",
                     before=["const int& one() {", "}"])
        for program in ["ops", "step"]:
            self.unnamed(f"bench/{program}.cpp", "int turns = 1;", before=["int main() {", "}"])
        self.assertEqual(self.offences(), [])
        self.unnamed("bench/part.cpp", "int turns = 1;")
        self.assertEqual(len(self.offences()), 2)

    def test_the_processors_sources_that_are_no_kernels_are_joined(self):
        for name in ("a", "b"):
            self.unnamed(f"engine/cpu/{name}.cpp", "int one = 1;")
        self.assertEqual(len(self.offences()), 1)


class Format(InTree):
    def test_a_badly_formatted_file_is_noticed(self):
        program, why = check_format.find_clang_format()
        if not program:
            self.skipTest(f"clang-format {check_format.VERSION}: {why}")
        (self.root / ".clang-format").write_text((ROOT / ".clang-format").read_text())
        self.write("engine/base/a.cpp", "int x = 1;")
        self.assertEqual(check_format.check(self.root, program), [])
        self.write("engine/base/b.cpp", "int  x=1;")
        self.assertEqual(len(check_format.check(self.root, program)), 1)


class HeaderAlone(InTree):
    def compiles(self, *header):
        self.write("a.h", *header)
        command = COMPILER + ["-std=c++20", "-I", str(self.root)]
        return check_headers.check_all(command, self.root, ["a.h"]) == []

    def test_a_header_that_needs_another_or_stands_twice_is_noticed(self):
        self.assertTrue(self.compiles("#pragma once", "#include <cstddef>", "struct A { std::size_t x; };"))
        self.assertFalse(self.compiles("#pragma once", "struct A { std::vector<int> x; };"))
        self.assertFalse(self.compiles("#pragma once", "#include <string>", "struct A { std::vector<int> x; };"))
        self.assertFalse(self.compiles("struct A {};"))

    def test_one_that_others_hide_is_noticed_and_named(self):
        self.write("a.h", "#pragma once", "struct A {};")
        self.write("b.h", "#pragma once", "inline A b;")
        self.write("c.h", "#pragma once", '#include "a.h"', '#include "b.h"')
        self.write("d.h", "#pragma once", '#include "a.h"', "inline A d;")
        command = COMPILER + ["-std=c++20", "-I", str(self.root)]
        offences = check_headers.check_all(command, self.root, ["b.h", "a.h", "c.h", "d.h"])
        self.assertEqual([text.split(":")[0] for text in offences], ["b.h"])

    def test_one_that_a_common_header_hides_is_noticed(self):
        self.write("common.h", "#pragma once", "struct C {};")
        self.write("x.h", "#pragma once", "inline C x;")
        self.write("y.h", "#pragma once", '#include "common.h"', '#include "x.h"')
        command = COMPILER + ["-std=c++20", "-I", str(self.root)]
        with mock.patch.object(check_headers, "COMMON", (("common.h",),)):
            offences = check_headers.check_all(command, self.root, ["x.h", "common.h", "y.h"])
        self.assertEqual([text.split(":")[0] for text in offences], ["x.h"])


if __name__ == "__main__":
    if not COMPILER:
        sys.exit("usage: lint_test.py ROOT -- COMPILER...")
    unittest.main(argv=sys.argv[:1])
