// SPDX-License-Identifier: MIT
// A Communicator that is one of NCCL's. NCCL is told never to block: each of its calls may return
// before it is through, and is asked about until it is, or the deadline has passed. Ranks of a part
// (`split`) count from 0 in it; errors name ranks as the whole has them. Rules of threads, costs
// and errors: communicator.h.
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
  // What errors say that was under way; `count` and `dtype` of collectives alone.
  struct Call {
    const char* name;
    std::size_t count = 0;
    engine::DType dtype{};
    int root = -1;
  };

  // One rank a process; `load` gives the functions. Collective, and throws on all processes where
  // one has no NCCL or another version. The bootstrap must outlive it.
  static std::unique_ptr<NcclCommunicator> open(Bootstrap& bootstrap,
                                                const std::function<NcclFunctions()>& load,
                                                Options options);
  NcclCommunicator(const NcclFunctions& functions, const ncclUniqueId& id, int rank, int ranks,
                   Options options);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // The part of these ranks of this communicator, the calling one among them; null where there are
  // none. Collective: all ranks of a part name the same, in the same order. It must not outlive
  // this one.
  std::unique_ptr<NcclCommunicator> split(const std::vector<int>& members);
  // Collectives of this communicator that `calls` makes become one piece of work, in any order.
  void together(const std::function<void()>& calls);

  // Waits name this call from now on. Throws where something failed before.
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
  Call call_{"start"};                        // the last
  std::map<const std::byte*, void*> memory_;  // NCCL's handles
  std::optional<ncclResult_t> grouped_;       // in `together`: the first that went wrong
  std::optional<engine::Error> failure_;
};

}  // namespace lockstep::collectives::nccl
