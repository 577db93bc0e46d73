// SPDX-License-Identifier: MIT
#include "strategies/grpc/channel_arguments.h"

#include <grpc/grpc.h>
#include <malloc.h>

namespace lockstep::strategies::grpc {

namespace {

constexpr int kSecond = 1000;
constexpr int kKibi = 1024, kMebi = 1024 * 1024;
constexpr int kLargestFrame = 16 * kMebi - 1;  // HTTP/2's maximum; each frame has its own slices

// Larger allocations come from the system and return to it, like the engine's own memory.
constexpr int kLargestKept = 8 * kMebi;
constexpr int kMostKept = 256 * kMebi;  // free bytes at an arena's end

ChannelArguments common() {
  return {{GRPC_ARG_KEEPALIVE_TIME_MS, kSecond},
          {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kSecond},
          {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
          {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kLargestFrame},
          {GRPC_ARG_TCP_READ_CHUNK_SIZE, kMebi},
          {GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, 256 * kKibi}};
}

ChannelArguments with(ChannelArguments arguments, std::string name, int value) {
  arguments.emplace_back(std::move(name), value);
  return arguments;
}

}  // namespace

ChannelArguments arguments_of_server() {
  // The server treats clients that ping more often than this as hostile.
  return with(common(), GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kSecond / 2);
}

ChannelArguments arguments_of_client() {
  return with(common(), GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // as many as needed
}

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, kLargestKept);
  mallopt(M_TRIM_THRESHOLD, kMostKept);
}

}  // namespace lockstep::strategies::grpc
