// SPDX-License-Identifier: MIT
// Kernels are found by name: what nvcc compiles, what arguments say and what the emulator runs must
// agree. LOCKSTEP_SOURCE is where the sources lie.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <tuple>

#include "engine/cuda/kernels/all.h"
#include "test/engine/cuda/emulated_kernels.h"

namespace lockstep::engine::cuda {
namespace kernel_names_test {

using Names = std::map<std::string, std::string>;  // of kernels by those of their arguments

std::filesystem::path folder() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE");
  return std::filesystem::path(source == nullptr ? "." : source) / "engine/cuda/kernels";
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Names of kernels as arguments tell them.
Names told() {
  const std::regex pattern(
      R"x(struct (\w+)(?: : \w+)? \{\s+static constexpr const char\* kName = "(\w+)";)x");
  Names names;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() != ".h") continue;
    const std::string text = text_of(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
      names[match->str(1)] = match->str(2);
  }
  return names;
}

// Names of kernels that are compiled, of those alone that begin in `start`: another one would not
// wait for the kernel before it.
Names compiled() {
  const std::regex pattern(
      R"(extern "C" __global__ void (?:__launch_bounds__\([\w, ]+\)\s+)?(\w+)\((\w+) a\) \{\s+start\(a\);\s+\})");
  const std::string text = text_of(folder() / "kernels.cu");
  Names names;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    names[match->str(2)] = match->str(1);
  return names;
}

TEST(KernelNames, AreThoseThatArgumentsTell) {
  EXPECT_EQ(compiled(), told());
  EXPECT_EQ(compiled().size(), std::tuple_size_v<Kernels>);
}

TEST(KernelNames, AreAllEmulatedAndDiffer) {
  std::set<std::string> wanted;
  for (const auto& [arguments, name] : told()) wanted.insert(name);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::set<std::string> names;
    for (const EmulatedKernel& kernel : emulated_kernels(dtype)) names.insert(kernel.name);
    EXPECT_EQ(names, wanted);
    EXPECT_EQ(emulated_kernels(dtype).size(), wanted.size());
  }
}

}  // namespace kernel_names_test
}  // namespace lockstep::engine::cuda
