// SPDX-License-Identifier: MIT
#include "engine/base/error.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace lockstep::engine {

std::string_view name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kIo:
      return "io";
    case Code::kMemory:
      return "memory";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kDevice:
      return "device";
    case Code::kTimeout:
      return "timeout";
    case Code::kPeerLost:
      return "peer lost";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kAborted:
      return "aborted";
  }
  return "unknown";
}

Error::Error(Code code, const std::string& message, std::vector<int> ranks, bool located)
    : std::runtime_error(message), code_(code), located_(located) {
  if (ranks.empty()) return;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  ranks_ = std::make_shared<const std::vector<int>>(std::move(ranks));
}

const std::vector<int>& Error::ranks() const {
  static const std::vector<int> none;
  return ranks_ ? *ranks_ : none;
}

Error Error::with(const std::string& message) const {
  Error other(code_, message);
  other.located_ = located_;
  other.option_ = option_;
  other.ranks_ = ranks_;
  return other;
}

Error Error::about(Option option) const {
  Error other = *this;
  other.option_ = option;
  return other;
}

Error as_error(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return *ours;
  return {Code::kAborted, error.what()};
}

void broken(std::string_view what, std::source_location at) {
  std::fprintf(stderr, "lockstep: broken invariant: %.*s (%s:%u, %s)\n", int(what.size()),
               what.data(), at.file_name(), unsigned(at.line()), at.function_name());
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep::engine
