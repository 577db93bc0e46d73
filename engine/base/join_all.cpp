// SPDX-License-Identifier: MIT
#include "engine/base/join_all.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine {

struct JoinAll::Shared {
  std::stop_source stop;
  std::mutex mutex;  // guards all that follows
  std::condition_variable changed;
  std::vector<bool> ended;  // by the number of the thread
  std::size_t running = 0;
  std::exception_ptr first;
  bool stopping = false;
};

JoinAll::JoinAll() : shared_(std::make_shared<Shared>()) {}

JoinAll::~JoinAll() {
  request_stop();
}

void JoinAll::start(std::string name, std::function<void(std::stop_token)> work) {
  std::size_t number = 0;
  members_.reserve(members_.size() + 1);  // nothing fails once the thread runs
  {
    const std::lock_guard lock(shared_->mutex);
    number = shared_->ended.size();
    shared_->ended.push_back(false);
    ++shared_->running;
  }
  const auto body = [shared = shared_, number, work = std::move(work)] {
    std::exception_ptr error;
    try {
      work(shared->stop.get_token());
    } catch (...) {
      error = std::current_exception();
    }
    if (error) {
      {  // kept before the others are asked to stop, who may throw because of that
        const std::lock_guard lock(shared->mutex);
        if (!shared->first) shared->first = error;
        shared->stopping = true;
      }
      shared->stop.request_stop();
    }
    const std::lock_guard lock(shared->mutex);
    shared->ended[number] = true;
    --shared->running;
    shared->changed.notify_all();
  };
  try {
    std::jthread thread(body);
    members_.push_back({std::move(name), std::move(thread), number});
  } catch (const std::system_error& error) {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->ended[number] = true;
      --shared_->running;
    }
    fail(Code::kIo, "cannot start thread {}: {}", name, error.what());
  }
}

void JoinAll::request_stop() {
  shared_->stop.request_stop();
  const std::lock_guard lock(shared_->mutex);
  shared_->stopping = true;
  shared_->changed.notify_all();
}

std::stop_token JoinAll::stop_token() const {
  return shared_->stop.get_token();
}

std::string JoinAll::stuck() const {
  std::string names;
  for (const Member& member : members_) {
    if (shared_->ended[member.number]) continue;
    names += (names.empty() ? "" : ", ") + member.name;
  }
  return names;
}

void JoinAll::join(std::chrono::milliseconds grace) {
  std::unique_lock lock(shared_->mutex);
  const auto all_ended = [&] { return shared_->running == 0; };
  shared_->changed.wait(lock, [&] { return all_ended() || shared_->stopping; });
  const bool in_time = shared_->changed.wait_for(lock, grace, all_ended);
  const std::exception_ptr first = std::exchange(shared_->first, nullptr);
  const std::string names = stuck();
  std::vector<Member> members = std::exchange(members_, {});
  if (!in_time) {
    for (Member& member : members) {
      if (!shared_->ended[member.number]) member.thread.detach();
    }
  }
  lock.unlock();
  members.clear();  // joins those that have ended
  shared_ = std::make_shared<Shared>();
  std::string cause;
  try {
    if (first) std::rethrow_exception(first);
  } catch (const std::exception& error) {
    if (in_time) throw;
    cause = std::string("; the first error: ") + error.what();
  } catch (...) {
    if (in_time) throw;
    cause = "; the first error is of an unknown kind";
  }
  if (!in_time) {
    fail(Code::kTimeout, "did not stop within {} ms and may run on: {}{}", grace.count(), names,
         cause);
  }
}

}  // namespace lockstep::engine
