// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/version_waiters.h"

#include <algorithm>
#include <utility>

namespace lockstep::strategies {

void VersionWaiters::add(std::int64_t at_least, std::shared_ptr<const rpc::Caller> caller,
                         Continue go_on) {
  waiters_.push_back({at_least, std::move(caller), std::move(go_on)});
}

// Takes the matching continuations in the order of `add`.
template <class Test>
VersionWaiters::Taken VersionWaiters::take_if(Test test) {
  const auto first = std::stable_partition(waiters_.begin(), waiters_.end(),
                                           [&](const Waiter& waiter) { return !test(waiter); });
  Taken taken;
  for (auto waiter = first; waiter != waiters_.end(); ++waiter)
    taken.push_back(std::move(waiter->go_on));
  waiters_.erase(first, waiters_.end());
  return taken;
}

VersionWaiters::Taken VersionWaiters::take(std::int64_t version) {
  return take_if([&](const Waiter& waiter) { return waiter.at_least <= version; });
}

VersionWaiters::Taken VersionWaiters::take_gone() {
  return take_if([](const Waiter& waiter) { return waiter.caller && waiter.caller->gone(); });
}

VersionWaiters::Taken VersionWaiters::take_all() {
  return take_if([](const Waiter&) { return true; });
}

}  // namespace lockstep::strategies
