// SPDX-License-Identifier: MIT
// Events that tests wait for: no time is long enough on a busy machine, and any is too long.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "engine/base/error.h"

namespace lockstep::test {

// Whether `holds` came true before a deadline that only a defect reaches.
template <class Condition>
bool await(const Condition& holds) {
  const auto until = engine::Clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (engine::Clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Whether all threads of this process but the calling one sleep: they wait, and have done all that
// they could before.
inline bool others_sleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream file(task.path() / "stat");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    const std::size_t state = text.rfind(") ");  // behind the name; absent where it has ended
    if (state != std::string::npos && text.compare(state, 3, ") S") != 0) return false;
  }
  return true;
}

}  // namespace lockstep::test
