// SPDX-License-Identifier: MIT
// A connection to a service of the same process. The connection's own thread calls the service and
// runs `done`, so callers are never reentered. A slow service delays only the other calls of this
// connection. Bytes of a request without an owner are copied, since the service may keep them
// longer than the call; others are passed on.
#pragma once
#include <memory>
#include <string>

#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"

namespace lockstep::strategies::rpc {

class InProcess : public Connection {
 public:
  // The service must outlive the connection. Its `done` may be called after the connection's end.
  // Slices without an owner in its replies must outlive the service.
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
  // Includes calls that the service has not answered; they share it.
  std::shared_ptr<Calls> calls_;
  std::unique_ptr<TimedWork> work_;
};

}  // namespace lockstep::strategies::rpc
