// SPDX-License-Identifier: MIT
// A fake NCCL whose sums run in the streams of fake GPUs, as a library for strategies.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "collectives/nccl/hierarchical.h"
#include "strategies/synchronous/vendor_sums.h"
#include "test/collectives/nccl/fake_nccl.h"
#include "test/engine/cuda/fake_meeting.h"

namespace lockstep::test {

class StreamMeeting final : public collectives::nccl::FakeNccl::Meeting {
 public:
  StreamMeeting(int ranks, std::function<void()> run) : meeting_(ranks, std::move(run)) {}
  void join(void* stream) override { meeting_.join(static_cast<CUstream>(stream)); }
  void give_up() override { meeting_.give_up(); }

 private:
  engine::cuda::FakeMeeting meeting_;
};

inline collectives::nccl::FakeNccl::Meet in_streams() {
  return [](int ranks, std::function<void()> run) {
    return std::make_unique<StreamMeeting>(ranks, std::move(run));
  };
}

// Returns a library that opens communicators of the fake, which must outlive them.
inline strategies::VendorLibrary library(collectives::nccl::FakeNccl& nccl) {
  using namespace collectives::nccl;
  return {[] { return "2.28.9"; },
          [&nccl](collectives::Bootstrap& bootstrap,
                  const Options& options) -> std::unique_ptr<Communicator> {
            auto flat = NcclCommunicator::open(
                bootstrap, [&nccl] { return nccl.functions(); }, options);
            if (!options.hierarchical) return flat;
            return std::make_unique<Hierarchical>(std::move(flat), bootstrap.hosts());
          }};
}

}  // namespace lockstep::test
