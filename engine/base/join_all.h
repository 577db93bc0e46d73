// SPDX-License-Identifier: MIT
// Threads that stand and fall together. Each gets the group's stop token; the first exception that
// leaves one of them is kept and asks the others to stop, and `join` throws it again. Made, filled
// and joined by one thread; the stop token may be used by all. An empty group costs an allocation.
//
// A thread that does not stop cannot be ended. `join` names it and lets go: it runs on, owns
// what it needs of the group, and everything else that it uses must live as long as the program, or
// the program must end.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::engine {

class JoinAll {
 public:
  JoinAll();
  ~JoinAll();  // asks to stop and waits for all, without an end: call `join` before
  JoinAll(const JoinAll&) = delete;
  JoinAll& operator=(const JoinAll&) = delete;

  // Starts a thread; `name` is what an error calls it. Throws Error(kIo) when the system has none.
  void start(std::string name, std::function<void(std::stop_token)> work);
  void request_stop();
  std::stop_token stop_token() const;

  // Waits until all threads have ended: as long as they run if nobody asks them to stop, and for
  // `grace` after somebody did. Throws the first exception of a thread. Throws Error(kTimeout)
  // naming the threads that are stuck, with the text of the first exception. The group is empty
  // then.
  void join(std::chrono::milliseconds grace);

 private:
  struct Shared;
  struct Member {
    std::string name;
    std::jthread thread;
    std::size_t number = 0;  // in Shared::ended
  };
  std::string stuck() const;
  std::shared_ptr<Shared> shared_;  // shared with the threads: a stuck one outlives the group
  std::vector<Member> members_;
};

}  // namespace lockstep::engine
