// SPDX-License-Identifier: MIT
// A service whose callers on this host give bodies, and take those of answers, in memory that both
// processes map (shared_connection.h): one more method, "Shared", whose head (SharedRequest) names
// the memory and the method that is meant. All other calls are passed on as they are.
//
// Memory is that of a process of the same user, which knows the key at its end, cannot make it
// shorter, and is mapped when it is first named; what was not used for `idle` is let go, and is
// mapped again when it is named again. Every head is taken for hostile: what it names lies within
// the memory, or the call is refused. Whoever gave the memory may write into it while it is read:
// what the service makes of such a body is the caller's own doing, as with any other body.
//
// The service gets bodies without owner: they last until it has called `done`. Threads: any.
#pragma once
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>

#include "collectives/memory/mapped_memory.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"

namespace lockstep::strategies::rpc {

class SharedService : public Service {
 public:
  static constexpr std::string_view kMethod = "Shared";
  static constexpr std::size_t kMostMapped = 4096;  // blocks; the longest unused is let go
  // Where the answer's body begins in the memory: behind the request's, at a line of the caches.
  static constexpr std::size_t answer_at(std::size_t body_bytes) {
    return (body_bytes + 63) / 64 * 64;
  }

  // The service outlives this one.
  explicit SharedService(Service& service,
                         std::chrono::milliseconds idle = std::chrono::seconds(10));
  ~SharedService() override;
  void call(std::string_view method, Message request, std::shared_ptr<const Caller> caller,
            Done done) override;
  std::size_t mapped() const;  // blocks

 private:
  struct Mapping;
  using Key = std::tuple<int, int, std::size_t, std::uint64_t>;
  std::shared_ptr<Mapping> mapping(const collectives::MappingAddress& address);
  void let_go();
  Service& service_;
  const std::chrono::milliseconds idle_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<Mapping>> mapped_;
  TimedWork work_;  // the last one: its thread ends before what it uses
};

}  // namespace lockstep::strategies::rpc
