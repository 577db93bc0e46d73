// SPDX-License-Identifier: MIT
#include "collectives/nccl/hierarchical.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives::nccl {
namespace {

// Alignment of slices in elements, so that they are read in whole words.
constexpr std::size_t kAligned = 64;

}  // namespace

// Divides the data into slices, one per leader, of `part` elements. The last slice also has the
// remainder.
struct Hierarchical::Slices {
  std::byte* data;
  std::size_t count;
  engine::DType dtype;
  void* stream;
  int leaders;
  std::size_t part = count / std::size_t(leaders) / kAligned * kAligned;

  std::size_t whole() const { return part * std::size_t(leaders); }
  std::size_t left() const { return count - whole(); }
  std::size_t size(int leader) const { return part + (leader == leaders - 1 ? left() : 0); }
  std::byte* at(std::size_t element) const { return data + element * size_of(dtype); }
  std::byte* begin(int leader) const { return at(part * std::size_t(leader)); }
};

Hierarchical::Hierarchical(std::unique_ptr<NcclCommunicator> flat, const std::vector<int>& hosts)
    : flat_(std::move(flat)) {
  engine::require(int(hosts.size()) == flat_->ranks(), "{} ranks on {} hosts: one for each rank",
                  flat_->ranks(), hosts.size());
  std::map<int, std::vector<int>> ranks_of;
  for (int rank = 0; rank < flat_->ranks(); ++rank)
    ranks_of[hosts[std::size_t(rank)]].push_back(rank);
  std::size_t least = hosts.size(), most = 0;
  for (const auto& [host, ranks] : ranks_of) {
    least = std::min(least, ranks.size());
    most = std::max(most, ranks.size());
  }
  if (ranks_of.size() == 1 || most == 1) return;
  leaders_ = int(least);

  const std::vector<int>& mine = ranks_of[hosts[std::size_t(flat_->rank())]];
  const auto place = std::size_t(std::find(mine.begin(), mine.end(), flat_->rank()) - mine.begin());
  std::vector<int> alike;
  if (place < least) {
    for (const auto& [host, ranks] : ranks_of) alike.push_back(ranks[place]);
  }
  inside_ = flat_->split(mine);
  guarded([&] { across_ = flat_->split(alike); });
}

void Hierarchical::all_reduce(std::byte* data, std::size_t count, engine::DType dtype,
                              void* stream) {
  if (inside_ == nullptr) return flat_->all_reduce(data, count, dtype, stream);
  const Slices slices{data, count, dtype, stream, leaders_};
  guarded([&] {
    flat_->begin({"hierarchical all_reduce", count, dtype});
    add_inside(slices);
    add_across(slices);
    spread_inside(slices);
  });
}

// Reduces within the host. If all ranks lead, each needs only the sums of its slice, and the last
// one those of the remainder. Otherwise all ranks get all sums, although only leaders need them.
void Hierarchical::add_inside(const Slices& s) {
  if (inside_->ranks() > leaders_) return inside_->all_reduce(s.data, s.count, s.dtype, s.stream);
  inside_->together([&] {
    inside_->reduce_scatter(s.data, s.part, s.dtype, s.stream);
    inside_->all_reduce(s.at(s.whole()), s.left(), s.dtype, s.stream);
  });
}

void Hierarchical::add_across(const Slices& s) {
  if (across_ == nullptr) return;
  const int slice = inside_->rank();
  across_->all_reduce(s.begin(slice), s.size(slice), s.dtype, s.stream);
}

void Hierarchical::spread_inside(const Slices& s) {
  inside_->together([&] {
    if (inside_->ranks() == leaders_) {
      inside_->all_gather(s.data, s.part, s.dtype, s.stream);
      inside_->broadcast(s.at(s.whole()), s.left(), s.dtype, leaders_ - 1, s.stream);
    } else {
      for (int leader = 0; leader < leaders_; ++leader)
        inside_->broadcast(s.begin(leader), s.size(leader), s.dtype, leader, s.stream);
    }
  });
}

void Hierarchical::reduce_scatter(std::byte* data, std::size_t part, engine::DType dtype,
                                  void* stream) {
  guarded([&] { flat_->reduce_scatter(data, part, dtype, stream); });
}

void Hierarchical::all_gather(std::byte* data, std::size_t part, engine::DType dtype,
                              void* stream) {
  guarded([&] { flat_->all_gather(data, part, dtype, stream); });
}

void Hierarchical::broadcast(std::byte* data, std::size_t count, engine::DType dtype, int root,
                             void* stream) {
  guarded([&] { flat_->broadcast(data, count, dtype, root, stream); });
}

void Hierarchical::add_memory(std::byte* data, std::size_t bytes) {
  guarded([&] {
    for (NcclCommunicator* communicator : all()) communicator->add_memory(data, bytes);
  });
}

void Hierarchical::remove_memory(const std::byte* data) {
  guarded([&] {
    for (NcclCommunicator* communicator : all()) communicator->remove_memory(data);
  });
}

engine::Buffer Hierarchical::allocate(std::size_t bytes) {
  return flat_->allocate(bytes);
}

void Hierarchical::check() {
  guarded([&] {
    for (NcclCommunicator* communicator : all()) communicator->check();
  });
}

void Hierarchical::wait(const std::function<bool()>& done) {
  guarded([&] {
    flat_->wait([&] {
      check();
      return done();
    });
  });
}

void Hierarchical::abort(const engine::Error& why) noexcept {
  if (across_ != nullptr) across_->abort(why);
  if (inside_ != nullptr) inside_->abort(why);
  flat_->abort(why);
}

std::vector<NcclCommunicator*> Hierarchical::all() const {
  std::vector<NcclCommunicator*> there;
  for (const auto* communicator : {&flat_, &inside_, &across_})
    if (*communicator != nullptr) there.push_back(communicator->get());
  return there;
}

// Runs `work`. If one of the communicators has failed, all are aborted with its error.
void Hierarchical::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (const engine::Error& error) {
    const std::vector<NcclCommunicator*> there = all();
    if (std::any_of(there.begin(), there.end(), [](const auto* one) { return one->failed(); }))
      abort(error);
    throw;
  }
}

}  // namespace lockstep::collectives::nccl
