// SPDX-License-Identifier: MIT
// A library that is searched for at run time, and the result. Plain data; thread-safe.
#pragma once
#include <string>

namespace lockstep::engine {

struct LibraryFinding {
  std::string name;  // "cuDNN"
  bool found = false;
  std::string text = {};  // its version, or why it is unusable
};

}  // namespace lockstep::engine
