// SPDX-License-Identifier: MIT
// A library that is looked for when the program runs, and what was found. Plain data; any thread.
#pragma once
#include <string>

namespace lockstep::engine {

struct LibraryFinding {
  std::string name;  // "cuDNN"
  bool found = false;
  std::string text = {};  // its version, or why it cannot be used, in one line
};

}  // namespace lockstep::engine
