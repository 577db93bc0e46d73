// SPDX-License-Identifier: MIT
// A service for transport tests, which answers according to the method's name.
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
  // Answers "Echo" with the same head and body, and "Count" with the number of the body's slices in
  // the head. Fails "Fail" with the code in the head and the body as the text. Keeps "Silent" until
  // `answer`. Answers "Busy" like "Echo" after computing for 100 ms. Fails other methods with
  // kInvalid.
  void call(std::string_view method, strategies::rpc::Message request,
            std::shared_ptr<const strategies::rpc::Caller> caller,
            strategies::rpc::Done done) override;

  std::size_t calls() const { return calls_; }
  // Waits until `count` silent calls have arrived. Returns false after ten seconds.
  bool wait_silent(std::size_t count);
  // Returns the callers of the silent calls in the order of arrival.
  std::vector<std::shared_ptr<const strategies::rpc::Caller>> silent_callers();
  void answer();  // answers silent calls with their own messages

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

// Returns a message with a body in `slices` slices. Its bytes depend on position and `seed`.
strategies::rpc::Message message_of(std::string head, std::size_t bytes, std::uint64_t seed = 1,
                                    std::size_t slices = 1);
std::string body_of(const strategies::rpc::Message& message);  // concatenated

}  // namespace lockstep::test
