// SPDX-License-Identifier: MIT
// The commands of the program. Each adds its flags to the parser and returns the function that runs
// it; main.cpp turns errors into one line and an exit code.
#pragma once
#include <functional>

#include "tools/config_file.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct Program {
  int argc = 0;
  char** argv = nullptr;
  Configured configured = {};  // for train: flags, and those from a file
};
using Command = std::function<int(const Program&)>;

Command add_train(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_predict(CLI::App& app);
Command add_plan(CLI::App& app);
Command add_serve(CLI::App& app);
Command add_render(CLI::App& app);
Command add_doctor(CLI::App& app);
// These two print the flags of all commands of the app's parent.
Command add_completion(CLI::App& app);
Command add_man(CLI::App& app);

}  // namespace lockstep::tools
