// SPDX-License-Identifier: MIT
// Calls that wait until a version is reached: no thread waits, each call left behind what is to be
// done then. Whoever takes continuations out runs them, once each, without holding a lock. One
// thread at a time (the owner's lock).
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
  // With null the version is there, else why it will not come.
  using Continue = std::function<void(const engine::Error*)>;
  using Taken = std::vector<Continue>;

  void add(std::int64_t at_least, std::shared_ptr<const rpc::Caller> caller, Continue go_on);
  Taken take(std::int64_t version);  // those that waited for it
  Taken take_gone();                 // those whose caller does not wait any more
  Taken take_all();
  std::size_t size() const { return waiters_.size(); }

 private:
  struct Waiter {
    std::int64_t at_least = 0;
    std::shared_ptr<const rpc::Caller> caller;  // null: somebody who never goes
    Continue go_on;
  };
  template <class Test>
  Taken take_if(Test test);
  std::vector<Waiter> waiters_;
};

}  // namespace lockstep::strategies
