// SPDX-License-Identifier: MIT
// All-reduce by hosts over NCCL. The ranks of a host reduce among themselves, and each leader keeps
// the sums of one slice. The leaders of a slice, one on each host, reduce these. Then leaders send
// their sums to all ranks of their host. Every host has as many leaders as the smallest host has
// ranks. The leaders of a slice have the same position in their hosts. H hosts exchange 2 (H - 1) /
// H of the bytes, however many ranks they have.
//
// All other collectives use the flat communicator; so does the all-reduce on one host, or with one
// rank per host. A failure in a part fails the whole. collectives/run/device_communicator.h states
// the rules of threads, costs and errors.
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
  // Splits `flat` by hosts. `hosts`: the host of each rank of `flat`. Collective over these ranks.
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

  // The parts are destroyed before the whole.
  std::unique_ptr<NcclCommunicator> flat_;
  std::unique_ptr<NcclCommunicator> inside_;  // ranks of this host; null if flat
  std::unique_ptr<NcclCommunicator> across_;  // leaders of this rank's slice; null if none
  int leaders_ = 0;                           // per host: ranks of `inside_` below it
};

}  // namespace lockstep::collectives::nccl
