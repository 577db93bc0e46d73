// SPDX-License-Identifier: MIT
// All-reduces by hosts, over NCCL: the ranks of a host add among themselves, each of its leaders
// keeps the sums of one slice; the leaders of that slice, one on each host, add these; then leaders
// give theirs to all ranks of their host. A host has as many leaders as the smallest host has
// ranks, so that every slice has one on each: ranks with the same place in their host. Between
// hosts go 2 (H - 1) / H of the bytes for H hosts, however many ranks they have.
//
// On one host, and where each host has one rank, this is the flat communicator; as are all other
// collectives. What fails in a part fails the whole. Rules of threads, costs and errors:
// communicator.h.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/nccl/communicator.h"
#include "collectives/nccl/nccl_communicator.h"

namespace lockstep::collectives::nccl {

class Hierarchical final : public Communicator {
 public:
  // `hosts`: of each rank of `flat`. Collective over these.
  Hierarchical(std::unique_ptr<NcclCommunicator> flat, const std::vector<int>& hosts);

  int rank() const override { return flat_->rank(); }
  int ranks() const override { return flat_->ranks(); }
  void all_reduce(std::byte* data, std::size_t count, engine::DType dtype, void* stream) override;
  void reduce_scatter(std::byte* data, std::size_t part, engine::DType dtype,
                      void* stream) override;
  void all_gather(std::byte* data, std::size_t part, engine::DType dtype, void* stream) override;
  void broadcast(std::byte* data, std::size_t count, engine::DType dtype, int root,
                 void* stream) override;
  void add_memory(std::byte* data, std::size_t bytes) override;
  void remove_memory(const std::byte* data) override;
  engine::Buffer allocate(std::size_t bytes) override;
  void check() override;
  void wait(const std::function<bool()>& done) override;
  void abort(const engine::Error& why) noexcept override;

 private:
  struct Slices;
  void add_inside(const Slices& slices);
  void add_across(const Slices& slices);
  void spread_inside(const Slices& slices);
  std::vector<NcclCommunicator*> all() const;
  void guarded(const std::function<void()>& work);

  // The parts go before the whole.
  std::unique_ptr<NcclCommunicator> flat_;
  std::unique_ptr<NcclCommunicator> inside_;  // my host; null where all is flat
  std::unique_ptr<NcclCommunicator> across_;  // the leaders of my slice; null where I lead none
  int leaders_ = 0;                           // of each host: ranks of `inside_` below it
};

}  // namespace lockstep::collectives::nccl
