// SPDX-License-Identifier: MIT
// A queue between threads that holds at most `capacity` items: who pushes into a full one waits,
// who pops from an empty one waits. A producer says "no more" with `close`: what is in the queue is
// still popped, then `pop` returns nothing, at once and for ever. Any number of threads may call
// anything; all must be gone before the queue is. A call costs a lock; items are moved.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {
    require(capacity > 0, "queue: a capacity of 0; it needs at least 1");
  }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // Waits for room. Throws Error(kAborted) when the queue is closed, also while waiting.
  void push(T item) {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return closed_ || items_.size() < capacity_; });
    put(std::move(item));
  }
  // False when there is no room (until the deadline); `item` is as before then.
  bool try_push(T& item) {
    const std::lock_guard lock(mutex_);
    return put_where_room(item);
  }
  bool push_until(T& item, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    room_.wait_until(lock, deadline, [&] { return closed_ || items_.size() < capacity_; });
    return put_where_room(item);
  }

  // The oldest item; waits for one. Nothing: the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !items_.empty(); });
    return get();
  }
  // Throws Error(kTimeout) when neither an item nor the end came by the deadline.
  std::optional<T> pop_until(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    if (!filled_.wait_until(lock, deadline, [&] { return closed_ || !items_.empty(); })) {
      throw Error(Code::kTimeout, "queue: nothing came before the deadline");
    }
    return get();
  }
  // Nothing: no item now; `finished` says whether one may still come.
  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    return get();
  }

  enum class Pending { kDrain, kDrop };
  // No more pushes. What is in the queue is popped as before, or dropped now. Closing again is
  // allowed, and may drop what was to be drained.
  void close(Pending pending = Pending::kDrain) {
    std::deque<T> dropped;  // destroyed without the lock
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      if (pending == Pending::kDrop) dropped.swap(items_);
    }
    room_.notify_all();
    filled_.notify_all();
  }

  bool finished() const {  // closed and empty
    const std::lock_guard lock(mutex_);
    return closed_ && items_.empty();
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  std::size_t capacity() const { return capacity_; }

 private:
  // Under the lock, all three.
  void put(T&& item) {
    if (closed_) throw Error(Code::kAborted, "queue: it is closed, nothing can be pushed");
    items_.push_back(std::move(item));
    filled_.notify_one();
  }
  bool put_where_room(T& item) {
    if (!closed_ && items_.size() == capacity_) return false;
    put(std::move(item));
    return true;
  }
  std::optional<T> get() {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    room_.notify_one();
    return item;
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;  // guards all that follows
  std::condition_variable room_, filled_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace lockstep::engine
