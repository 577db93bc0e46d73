// SPDX-License-Identifier: MIT
#include "engine/base/error.h"

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

void broken(std::string_view what, std::source_location at) {
  std::fprintf(stderr, "lockstep: broken invariant: %.*s (%s:%u, %s)\n", int(what.size()),
               what.data(), at.file_name(), unsigned(at.line()), at.function_name());
  std::fflush(stderr);
  std::abort();
}

}  // namespace lockstep::engine
