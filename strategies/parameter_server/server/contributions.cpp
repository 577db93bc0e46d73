// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/contributions.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::strategies {

void Contributions::check(const ShardRange& part) const {
  const auto refuse = [&](const Key& key, const Waiting& there) {
    engine::fail(engine::Code::kInvalid,
                 "elements {} to {} of shard {} were given for this step as {} to {}; all workers "
                 "cut a shard alike",
                 part.begin, part.end, part.shard, key.second, there.end);
  };
  const Key key{part.shard, part.begin};
  const auto next = parts_.lower_bound(key);
  if (next != parts_.end() && next->first == key && next->second.end == part.end) return;
  if (next != parts_.end() && next->first.first == part.shard && next->first.second < part.end)
    refuse(next->first, next->second);
  if (next == parts_.begin()) return;
  const auto before = std::prev(next);
  if (before->first.first == part.shard && before->second.end > part.begin)
    refuse(before->first, before->second);
}

Contributions::What Contributions::offer(const ShardRange& part, Gradient gradient,
                                         Complete& complete) {
  Waiting& here = parts_[{part.shard, part.begin}];
  here.end = part.end;
  const auto gave = std::find(here.workers.begin(), here.workers.end(), gradient.worker);
  if (gave != here.workers.end()) return What::kRepeated;
  if (here.complete) return What::kLate;
  here.workers.push_back(gradient.worker);
  here.gradients.push_back(std::move(gradient));
  if (here.gradients.size() < needed_) return What::kKept;
  here.complete = true;
  complete.part = part;
  complete.gradients = std::exchange(here.gradients, {});
  std::sort(complete.gradients.begin(), complete.gradients.end(),
            [](const Gradient& a, const Gradient& b) { return a.worker < b.worker; });
  return What::kComplete;
}

std::size_t Contributions::waiting() const {
  return std::size_t(std::count_if(parts_.begin(), parts_.end(),
                                   [](const auto& part) { return !part.second.complete; }));
}

}  // namespace lockstep::strategies
