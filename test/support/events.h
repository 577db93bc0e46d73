// SPDX-License-Identifier: MIT
// Waits for events instead of times: on a busy machine, no fixed time is long enough, and each is
// too long.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/base/error.h"

namespace lockstep::test {

// Waits until `holds` returns true. Returns false after a deadline that only a defect reaches.
template <class Condition>
bool await(const Condition& holds) {
  const auto until = engine::Clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (engine::Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Returns whether all threads of this process except the calling one sleep, that is, wait with
// nothing left to do.
inline bool others_sleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream file(task.path() / "stat");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const std::size_t state = text.rfind(") ");  // after the name; absent if ended
    if (state != std::string::npos && text.compare(state, 3, ") S") != 0) return false;
  }
  return true;
}

}  // namespace lockstep::test
