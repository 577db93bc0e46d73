// SPDX-License-Identifier: MIT
// Hierarchical as in hierarchical.cpp, with halving-doubling in place of the ring between the
// leaders of a slice: as many bytes on the wire in a logarithm of rounds, for few bytes or many
// hosts. doubling.cpp says how; leaders take the numbers of their host in the first round.
#include <limits>

#include "collectives/algorithms/doubling.h"
#include "collectives/algorithms/leaders.h"

namespace lockstep::collectives {
namespace {

// The leaders of each slice.
class Slices {
 public:
  explicit Slices(const Request& request)
      : request_(request), leaders_(leaders(request, std::numeric_limits<int>::max())) {
    const Range largest = slice(request.subject, leaders_.slices - 1, leaders_.slices);
    const bool whole = largest.size() * engine::size_of(request.dtype) <= kDoublingBytes;
    for (int s = 0; s < leaders_.slices; ++s) {
      std::vector<Party> parties;
      for (int h = 0; h < int(leaders_.hosts.size()); ++h)
        parties.push_back({leaders_.rank(h, s), leaders_.hosts[std::size_t(h)]});
      doublings_.emplace_back(request, parties, whole);
    }
  }
  const Leaders& all() const { return leaders_; }
  const Doubling& operator[](int slice) const { return doublings_[std::size_t(slice)]; }
  // One host sends no messages: one segment is as good as many.
  int parts() const {
    return leaders_.hosts.size() == 1 ? std::numeric_limits<int>::max() : doublings_[0].parts();
  }
  std::size_t scratch_of_lane() const {
    return lane_scratch(request_, leaders_, parts(),
                        [&](Range segment) { return doublings_[0].scratch(segment); });
  }

 private:
  const Request& request_;
  Leaders leaders_;
  std::vector<Doubling> doublings_;
};

}  // namespace

Plan hierarchical_halving_all_reduce(const Request& request) {
  const Slices slices(request);
  return lead(request, "hierarchical_halving", slices.all(), slices.parts(),
              slices.scratch_of_lane(),
              [&](Lane& lane, int slice, int host, Range segment, std::size_t scratch) {
                slices[slice].walk(lane, host, segment, {0, 0, scratch});
              });
}

std::size_t hierarchical_halving_scratch(const Request& request) {
  const Slices slices(request);
  return std::size_t(most_lanes(request, slices.all(), slices.parts())) * slices.scratch_of_lane();
}

}  // namespace lockstep::collectives
