// SPDX-License-Identifier: MIT
// EXPERIMENTAL, like the communicator.
//
// Gradients of a backward pass of one's own, summed over ranks in buckets, the early ones while the
// later ones are still being computed. T is float, double, Half or BFloat16.
//
//   lockstep::Buckets<float> buckets(communicator, {{w2, 4096}, {b2, 1}, {w1, 65536}});
//   ... backward: for each gradient that is final: buckets.ready(i);
//   buckets.wait();                              // all are sums (or means) now
//
// Gradients are given in the order in which backward finishes them, the same on all ranks; a bucket
// is a few of them, one behind the other. A bucket's sum begins when all of it is ready; it moves
// in calls of `ready` and `wait`: there is no thread behind it. A gradient without memory of its
// own (`data` null) lives in memory of the buckets, `gradient(i)`, and is summed where it lies; one
// that has memory is copied there by `ready` and back by `wait`.
//
// Of a communicator whose sums are reproducible they begin in `wait`, one bucket after the other,
// so that nothing is overlapped; each bucket is a span of its own to them, and a call that ranks
// compare: where another rank waits for other buckets, or makes another call, `wait` is an
// Error(kInvalid) on all of them, and may be called again.
//
// Threads, deadlines and errors: those of the communicator, which outlives the buckets. Different
// gradients on different ranks (another number of them, or other counts in their order), other
// options, and ranks that make another call instead, are an Error(kInvalid) on all ranks when the
// buckets are made; the communicator can be used on. Buckets that are destroyed in the middle of a
// round, by an exception in backward say, tell the other ranks at once who left: their next or
// present call on the communicator or its buckets throws Error(kAborted).
#pragma once
#include <span>
#include <vector>

#include "collectives/communicator/communicator.h"

namespace lockstep::collectives {

template <class T>
struct Gradient {
  T* data = nullptr;  // null: the buckets give the memory
  std::size_t count = 0;
};

struct BucketOptions {
  Reduce operation = Reduce::kMean;
  std::size_t bytes = std::size_t(4) << 20;  // of a bucket; a larger gradient has one of its own
};

template <class T>
class Buckets {
 public:
  // Collective. The gradients' memory outlives the buckets.
  Buckets(Communicator& communicator, std::vector<Gradient<T>> gradients,
          const BucketOptions& options = {});
  ~Buckets();  // not collective; between rounds it tells nobody
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  std::size_t buckets() const { return buckets_.size(); }
  // Where it is summed: the buckets' memory, or the caller's own.
  std::span<T> gradient(std::size_t i) const;
  // It is final, and may not be touched until `wait` has returned. Never waits; throws what has
  // stopped the communicator, or stops it where a sum fails on this rank.
  void ready(std::size_t i);
  // Until all are summed, on this rank. All must be ready. Then a next round may begin.
  void wait();

 private:
  struct Bucket {
    std::size_t begin = 0, end = 0;  // gradients
    std::size_t missing = 0;         // of these, in this round
  };
  std::span<T> in_memory(std::size_t i) const;
  void compare(std::size_t bytes);  // of a bucket

  Communicator& communicator_;
  Reduce operation_;
  std::size_t number_ = 0;  // of these, among the communicator's, from 1 on
  std::vector<Gradient<T>> gradients_;
  std::vector<std::size_t> offset_, bucket_of_;  // of each gradient
  std::vector<bool> ready_;
  std::vector<Bucket> buckets_;
  RankLink* link_ = nullptr;
};

extern template class Buckets<float>;
extern template class Buckets<double>;
extern template class Buckets<engine::Half>;
extern template class Buckets<engine::BFloat16>;

}  // namespace lockstep::collectives
