// SPDX-License-Identifier: MIT
// Kernels are found by name, so the names in compiled kernels, arguments, and the emulator must
// agree. LOCKSTEP_SOURCE is the folder of the sources.
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

using Names = std::map<std::string, std::string>;  // of kernels, by type of arguments

std::filesystem::path folder() {
  const char* const source = std::getenv("LOCKSTEP_SOURCE");
  return std::filesystem::path(source == nullptr ? "." : source) / "engine/cuda/kernels";
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the names of kernels in their arguments.
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

// Returns the names of compiled kernels that begin with `start`; others would not wait for the
// previous kernel.
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
