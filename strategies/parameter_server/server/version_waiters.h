// SPDX-License-Identifier: MIT
// Calls that wait for a version. No thread waits: each call leaves a continuation. The code that
// takes continuations out runs each once, without a lock. Not thread-safe (the owner's lock).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/error.h"
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies {

class VersionWaiters {
 public:
  // Null: the version is reached; else the reason why it will not be.
  using Continue = std::function<void(const engine::Error*)>;
  using Taken = std::vector<Continue>;

  void add(std::int64_t at_least, std::shared_ptr<const rpc::Caller> caller, Continue go_on);
  Taken take(std::int64_t version);  // those that waited for it
  Taken take_gone();                 // those whose callers have left
  Taken take_all();
  std::size_t size() const { return waiters_.size(); }

 private:
  struct Waiter {
    std::int64_t at_least = 0;
    std::shared_ptr<const rpc::Caller> caller;  // null: a caller that never leaves
    Continue go_on;
  };
  template <class Test>
  Taken take_if(Test test);
  std::vector<Waiter> waiters_;
};

}  // namespace lockstep::strategies
