// SPDX-License-Identifier: MIT
// A Communicator on one communicator of NCCL. NCCL is set never to block: a call may return before
// it is complete, and is polled until it is or the deadline has passed. Ranks of a part (`split`)
// count from 0 in it; errors name ranks of the whole. collectives/run/device_communicator.h states
// the rules of threads, costs and errors.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/nccl/communicator.h"
#include "collectives/nccl/nccl_functions.h"

namespace lockstep::collectives::nccl {

class NcclCommunicator final : public Communicator {
 public:
  // Describes the call that errors name. Only collectives set `count` and `dtype`.
  struct Call {
    const char* name;
    std::size_t count = 0;
    engine::DType dtype{};
    int root = -1;
  };

  // Opens one rank per process; `load` returns the functions. Collective. Throws on all processes
  // if one has no NCCL or another version. The bootstrap must outlive the communicator.
  static std::unique_ptr<NcclCommunicator> open(Bootstrap& bootstrap,
                                                const std::function<NcclFunctions()>& load,
                                                Options options);
  NcclCommunicator(const NcclFunctions& functions, const ncclUniqueId& id, int rank, int ranks,
                   Options options);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Returns the part of this communicator with these ranks, the caller among them, or null if there
  // are none. Collective: all ranks of a part pass the same ranks in the same order. The part must
  // not outlive this communicator.
  std::unique_ptr<NcclCommunicator> split(const std::vector<int>& members);
  // Groups the collectives that `calls` makes into one piece of work, in any order.
  void together(const std::function<void()>& calls);

  // Sets the call that later waits name. Throws if something failed before.
  void begin(const Call& call);
  bool failed() const { return failure_.has_value(); }

  int rank() const override { return rank_; }
  int ranks() const override { return int(members_.size()); }
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
  NcclCommunicator(const NcclFunctions& functions, ncclComm_t comm, int rank,
                   std::vector<int> members, Options options);
  bool begin_collective(const Call& call);
  void finish(ncclResult_t result);
  void poll(const std::function<bool()>& done);
  bool ready();
  std::string description() const;
  [[noreturn]] void fail_with(ncclResult_t result);
  [[noreturn]] void fail_with(const engine::Error& error);
  bool closed() noexcept;

  NcclFunctions functions_;
  ncclComm_t comm_ = nullptr;  // null once aborted
  int rank_;                   // in members_
  std::vector<int> members_;   // ranks of the whole
  Options options_;
  Call call_{"start"};                        // the last call
  std::map<const std::byte*, void*> memory_;  // NCCL's handles
  std::optional<ncclResult_t> grouped_;       // in `together`: its first error
  std::optional<engine::Error> failure_;
};

}  // namespace lockstep::collectives::nccl
