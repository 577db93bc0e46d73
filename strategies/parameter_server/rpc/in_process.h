// SPDX-License-Identifier: MIT
// A connection to a service of this process. The service is called, and `done` runs, on one thread
// of the connection's own, so that nobody calls himself; a service that takes its time holds up the
// other calls of this connection only. Bytes of a request that have no owner are copied, since the
// service may keep them longer than the call; others are passed on as they are.
#pragma once
#include <memory>
#include <string>

#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"

namespace lockstep::strategies::rpc {

class InProcess : public Connection {
 public:
  // The service outlives the connection, and its `done` may be called later than that. Slices
  // without owner in its replies outlive the service.
  explicit InProcess(Service& service, std::string address = "this process");
  ~InProcess() override;
  void start(std::string_view method, Message request, engine::Clock::time_point deadline,
             Done done) override;
  std::string address() const override { return address_; }

 private:
  class Call;
  struct Calls;
  Service& service_;
  std::string address_;
  std::shared_ptr<Calls> calls_;  // also of those whom the service still has to answer
  std::unique_ptr<TimedWork> work_;
};

}  // namespace lockstep::strategies::rpc
