// SPDX-License-Identifier: MIT
// A service for tests of what carries calls: it answers by the method's name.
#pragma once
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::test {

class EchoService : public strategies::rpc::Service {
 public:
  // "Echo": head and body come back; "Count": the head says in how many slices the body came.
  // "Fail": with the code of the number in the head; the text is the body. "Silent": nothing, until
  // `answer`. "Busy": the same as "Echo", after computing for 100 ms. Anything else: kInvalid.
  void call(std::string_view method, strategies::rpc::Message request,
            std::shared_ptr<const strategies::rpc::Caller> caller,
            strategies::rpc::Done done) override;

  std::size_t calls() const { return calls_; }
  // Waits until so many silent calls have come; false after ten seconds.
  bool wait_silent(std::size_t count);
  // The callers of the silent calls, in the order in which they came.
  std::vector<std::shared_ptr<const strategies::rpc::Caller>> silent_callers();
  void answer();  // all silent calls, with their own messages

 private:
  struct Waiting {
    strategies::rpc::Message request;
    std::shared_ptr<const strategies::rpc::Caller> caller;
    strategies::rpc::Done done;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Waiting> waiting_;
  std::atomic<std::size_t> calls_ = 0;
};

// A message with a body of bytes that depend on their place and on `seed`, in `slices` pieces.
strategies::rpc::Message message_of(std::string head, std::size_t bytes, std::uint64_t seed = 1,
                                    std::size_t slices = 1);
std::string body_of(const strategies::rpc::Message& message);  // in one piece

}  // namespace lockstep::test
