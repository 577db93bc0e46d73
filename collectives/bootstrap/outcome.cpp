// SPDX-License-Identifier: MIT
#include "collectives/bootstrap/outcome.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

// First letter of what is told. Of an error its code and, behind a blank, its sentence follow.
constexpr char kDone = '+', kFailed = '-';

std::string told_of(engine::Code code, const std::string& why) {
  return fmt::format("{}{} {}", kFailed, int(code), why);
}

}  // namespace

Outcome::Outcome(const std::string& what, const std::function<std::string()>& work) {
  try {
    told_ = kDone + work();
  } catch (const engine::Error& error) {
    if (error.code() == engine::Code::kTimeout || error.code() == engine::Code::kPeerLost) throw;
    failed_ = std::current_exception();
    told_ = told_of(error.code(), error.what());
  } catch (const std::exception& error) {
    failed_ = std::current_exception();
    told_ = told_of(engine::Code::kIo, fmt::format("{}: {}", what, error.what()));
  }
}

std::vector<std::string> Outcome::texts(std::vector<std::string> told) const {
  if (failed_) std::rethrow_exception(failed_);
  for (std::size_t process = 0; process < told.size(); ++process) {
    std::string& text = told[process];
    engine::require(!text.empty(), "process {} makes another call than process 0", process);
    if (text[0] == kFailed) {
      const char* const end = text.data() + text.size();
      int code = 0;
      const auto blank = std::from_chars(text.data() + 1, end, code).ptr;
      engine::fail(engine::Code(code), "process {}: {}", process,
                   std::string_view(std::min(blank + 1, end), end));
    }
    text.erase(0, 1);
  }
  return told;
}

std::vector<std::string> all_or_none(Bootstrap& bootstrap, const std::string& what,
                                     const std::function<std::string()>& work) {
  const Outcome mine(what, work);
  return mine.texts(bootstrap.all_gather(mine.told(), what));
}

}  // namespace lockstep::collectives
