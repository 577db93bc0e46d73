// SPDX-License-Identifier: MIT
// Messages between ranks of different hosts. Each rank has one transport; one thread at a time uses
// it (the executor's lock). Only `sleep` and `abort` block. Messages between two ranks with one tag
// arrive in the order of their posts. Memory belongs to the transport from the post until `test`
// returns true. Throws Error(kPeerLost), whose text begins with the peer ("rank 5 on host h2 is
// gone"), if the peer's end is gone, and Error(kIo).
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "engine/base/error.h"

namespace lockstep::collectives {

class Transport {
 public:
  virtual ~Transport() = default;
  // Each returns a request for `test`. `bytes` must be equal on both sides, else Error(kInvalid).
  virtual int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) = 0;
  virtual int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) = 0;
  // Returns true once, when the request is complete; then its number may be used again.
  virtual bool test(int request) = 0;
  // Moves what can move. Returns whether anything did.
  virtual bool progress() = 0;
  // Sleeps until something may move or the time is over. Call it only if there is nothing else to
  // do.
  virtual void sleep(int microseconds) = 0;
  // Ends a sleep that is in progress, or else the next one, at once. Thread-safe, also beside a
  // thread that uses the transport. Returns false if that is impossible.
  virtual bool wake() noexcept { return false; }
  // Identifies the control messages of ranks that have waited for long (liveness.h). A question
  // asks whether the peer waits in this plan, too. An answer has the plan that the peer waits in.
  enum class ControlKind { kQuestion, kAnswer };
  struct ControlMessage {
    int peer;
    ControlKind kind;
    int plan;
  };
  // Sends now or with later calls, behind messages that were begun. Sends nothing if the peer has
  // not taken the last control message, or cannot be reached.
  virtual void send_control(int /*peer*/, ControlKind, int /*plan*/) noexcept {}
  // Returns the oldest control message that `progress` has read.
  virtual std::optional<ControlMessage> receive_control() { return {}; }
  // Tells all peers why this rank ends early, if they can be reached at once. Their next call
  // throws this error, which travels in at most so many bytes (engine/base/error_bytes.h). No other
  // call may follow.
  static constexpr std::size_t kMostReason = 1024;
  virtual void abort(const engine::Error& /*why*/) noexcept {}
};

}  // namespace lockstep::collectives
