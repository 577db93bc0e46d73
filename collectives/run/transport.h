// SPDX-License-Identifier: MIT
// Messages between ranks of different hosts. One transport per rank; used by one thread at a time
// (the executor's lock). Nothing here blocks. Messages between two ranks with one tag arrive in the
// order in which they were posted. Memory belongs to the transport from the post until `test` says
// true. Errors: Error(kPeerLost) whose text begins with the peer ("rank 5 on host h2 is gone") when
// its end is gone; Error(kIo).
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "engine/base/error.h"

namespace lockstep::collectives {

class Transport {
 public:
  virtual ~Transport() = default;
  // Return a request for `test`. `bytes` of both sides must be equal: Error(kInvalid) where not.
  virtual int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) = 0;
  virtual int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) = 0;
  // True once, when the request is through; then its number may be used again.
  virtual bool test(int request) = 0;
  // Moves what can move. True when anything did.
  virtual bool progress() = 0;
  // Sleeps until something may move or so many microseconds are over: with nothing else to do.
  virtual void sleep(int microseconds) = 0;
  // Ends a sleep that is under way, or else the next one, at once. From any thread, also beside one
  // that uses the transport. False where nothing can do that.
  virtual bool wake() noexcept { return false; }
  // Control messages of ranks that have waited for long (liveness.h). A question asks whether the
  // peer waits in this plan, too. An answer has the plan that the peer waits in.
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
  // Tells all peers why this rank ends before its time, as far as they can be reached at once:
  // their next call throws this error, which travels in so many bytes (engine/base/error_bytes.h).
  // After this nothing else may be called.
  static constexpr std::size_t kMostReason = 1024;
  virtual void abort(const engine::Error& /*why*/) noexcept {}
};

}  // namespace lockstep::collectives
