// SPDX-License-Identifier: MIT
// A service for callers on this host that pass bodies in memory that both processes map
// (shared_connection.h). It adds the method "Shared", whose head (SharedRequest) names the memory
// and the actual method. All other calls are passed on unchanged.
//
// The memory must belong to a process of the same user, which must know the key at the memory's end
// and cannot shrink it. It is mapped at its first use and unmapped after `idle` without use. Heads
// are untrusted: a call that names bytes outside the memory is refused. The caller may write into
// the memory while it is read, which can only corrupt its own body.
//
// The service gets bodies without owner; they stay valid until it has called `done`. Thread-safe.
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
  static constexpr std::size_t kMostMapped = 4096;  // blocks; the least recently used is unmapped
  // Returns the offset of the answer's body: after the request's, aligned to a cache line.
  static constexpr std::size_t answer_at(std::size_t body_bytes) {
    return (body_bytes + 63) / 64 * 64;
  }

  // The inner service must outlive this one.
  explicit SharedService(Service& service,
                         std::chrono::milliseconds idle = std::chrono::seconds(10));
  ~SharedService() override;
  void call(std::string_view method, Message request, std::shared_ptr<const Caller> caller,
            Done done) override;
  std::size_t mapped() const;  // number of mapped blocks

 private:
  struct Mapping;
  using Key = std::tuple<int, int, std::size_t, std::uint64_t>;
  std::shared_ptr<Mapping> mapping(const collectives::MappingAddress& address);
  void let_go();
  Service& service_;
  const std::chrono::milliseconds idle_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<Mapping>> mapped_;
  // Last member: its thread ends before the members that it uses.
  TimedWork work_;
};

}  // namespace lockstep::strategies::rpc
