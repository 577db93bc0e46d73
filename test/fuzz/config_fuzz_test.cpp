// SPDX-License-Identifier: MIT
// Tests damaged flag files. They are refused as invalid, or yield the arguments of an independent
// JSON parse, each of them a flag of the command. No such arguments break the flag parser.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "test/fuzz/damage.h"
#include "test/fuzz/memory_file.h"
#include "test/fuzz/most_memory.h"
#include "tools/config_file.h"

namespace lockstep::test {
namespace config_fuzz_test {

using engine::Code;
using engine::Error;
using nlohmann::json;

constexpr std::size_t kLittle = std::size_t(1) << 20;
const std::string kWhole =
    R"({"epochs": 6, "rate": 0.05, "model": "mlp", "json": true, "batch": 64, "checkpoints": "a b"})";

// Returns the arguments: numbers as --name=value, strings as --name value, and true switches as
// --name.
std::vector<std::string> expected(const json& values) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : values.items()) {
    if (value.is_string()) {
      arguments.push_back("--" + name);
      arguments.push_back(value.get<std::string>());
    } else if (value.is_boolean()) {
      if (value.get<bool>()) arguments.push_back("--" + name);
    } else {
      arguments.push_back("--" + name + "=" + value.dump());
    }
  }
  return arguments;
}

TEST(ConfigFuzz, ADamagedFileIsRefusedOrSaysWhatAParserOfJsonReads) {
  struct {
    std::int64_t epochs = 1, batch = 1;
    double rate = 1;
    std::string model, checkpoints, config;
    bool json = false;
  } f;
  CLI::App app("a command", "train");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--epochs", f.epochs, "");
  app.add_option("--batch", f.batch, "");
  app.add_option("--rate", f.rate, "");
  app.add_option("--model", f.model, "");
  app.add_option("--checkpoints", f.checkpoints, "");
  app.add_option("--config", f.config, "");
  app.add_flag("--json", f.json, "");
  const auto figure = [](const json& value) { return value.is_number(); };
  const auto word = [](const json& value) { return value.is_string(); };
  const auto choice = [](const json& value) { return value.is_boolean(); };
  const std::map<std::string, std::function<bool(const json&)>> kinds = {
      {"epochs", figure}, {"batch", figure},     {"rate", figure},
      {"model", word},    {"checkpoints", word}, {"json", choice}};
  MemoryFile file;
  std::uint64_t accepted = 0;
  for (std::uint64_t number = 0; number < kInputs && !HasFailure(); ++number) {
    const std::string text = damaged(kWhole, number);
    file.set(text);
    watch_memory();
    try {
      std::vector<std::string> arguments =
          tools::with_config(app, {"train", "--config", file.path()}).arguments;
      const std::vector<std::string> from_file(arguments.begin() + 1, arguments.end() - 2);
      const json values = json::parse(text);
      EXPECT_EQ(from_file, expected(values)) << number;
      for (const auto& [name, value] : values.items()) {
        const auto known = kinds.find(name);
        EXPECT_TRUE(known != kinds.end() && known->second(value)) << number << ": " << name;
      }
      ++accepted;
      arguments.erase(arguments.begin());
      std::reverse(arguments.begin(), arguments.end());
      app.parse(arguments);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid) << number << ": " << error.what();
    } catch (const CLI::ParseError&) {  // an invalid value for its flag
    }
    EXPECT_LT(most_memory(), kLittle) << number;
  }
  EXPECT_GT(accepted, 100u);
  EXPECT_LT(accepted, kInputs * 2 / 3);
}

}  // namespace config_fuzz_test
}  // namespace lockstep::test
