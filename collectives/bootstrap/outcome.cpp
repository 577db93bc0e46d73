// SPDX-License-Identifier: MIT
#include "collectives/bootstrap/outcome.h"

#include <fmt/core.h>

#include <string_view>

#include "engine/base/error.h"
#include "engine/base/error_bytes.h"

namespace lockstep::collectives {
namespace {

// First character of a sent text. An error follows as bytes (engine/base/error_bytes.h).
constexpr char kDone = '+', kFailed = '-';

}  // namespace

Outcome::Outcome(const std::string& what, const std::function<std::string()>& work) {
  try {
    told_ = kDone + work();
  } catch (const engine::Error& error) {
    if (error.code() == engine::Code::kTimeout || error.code() == engine::Code::kPeerLost) throw;
    failed_ = std::current_exception();
    told_ = kFailed + engine::to_bytes(error);
  } catch (const std::exception& error) {
    failed_ = std::current_exception();
    told_ =
        kFailed + engine::to_bytes({engine::Code::kIo, fmt::format("{}: {}", what, error.what())});
  }
}

std::vector<std::string> Outcome::texts(std::vector<std::string> told) const {
  if (failed_) std::rethrow_exception(failed_);
  for (std::size_t process = 0; process < told.size(); ++process) {
    std::string& text = told[process];
    engine::require(!text.empty(), "process {} makes another call than process 0", process);
    if (text[0] == kFailed) {
      const auto error = engine::read_error(std::string_view(text).substr(1));
      engine::require(error.has_value(), "process {} tells no error", process);
      throw error->with(fmt::format("process {}: {}", process, error->what()));
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
