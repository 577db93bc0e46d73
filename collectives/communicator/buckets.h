// SPDX-License-Identifier: MIT
// EXPERIMENTAL, like the communicator.
//
// Buckets sum gradients over ranks during the caller's own backward pass. Early gradients are
// summed while later ones are still being computed. T is float, double, Half or BFloat16.
//
//   lockstep::Buckets<float> buckets(communicator, {{w2, 4096}, {b2, 1}, {w1, 65536}});
//   ... backward: for each gradient that is final: buckets.ready(i);
//   buckets.wait();                              // all are sums (or means) now
//
// Threads, deadlines and errors are those of the communicator, which outlives the buckets.
#pragma once
#include <span>
#include <vector>

#include "collectives/communicator/communicator.h"

namespace lockstep::collectives {

template <class T>
struct Gradient {
  T* data = nullptr;  // null: memory of the buckets
  std::size_t count = 0;
};

struct BucketOptions {
  Reduce operation = Reduce::kMean;
  // Bytes of a bucket. A larger gradient has its own bucket.
  std::size_t bytes = std::size_t(4) << 20;
};

// Gradients are given in the order in which backward finishes them, the same on all ranks. A bucket
// holds a few consecutive gradients, and its sum begins when all of them are ready. Sums advance in
// calls of `ready` and `wait`; there is no thread behind them. A gradient without memory (`data`
// null) lives in memory of the buckets, `gradient(i)`, and is summed in place. Other gradients are
// copied there by `ready` and back by `wait`.
//
// If the communicator is reproducible, the sums begin in `wait`, one bucket after the other, so
// nothing overlaps. Each bucket is then a span of its own and a call that ranks compare. If another
// rank waits for other buckets, or makes another call, `wait` throws Error(kInvalid) on all of them
// and may be called again.
//
// The constructor throws Error(kInvalid) on all ranks if their options, numbers of gradients or
// counts differ, or if another rank makes another call. The communicator stays usable. Buckets that
// are destroyed in the middle of a round, for example by an exception, tell the other ranks at once
// which rank left. Their current or next call on the communicator or its buckets throws
// Error(kAborted).
template <class T>
class Buckets {
 public:
  // The gradients' memory must outlive the buckets. Collective.
  Buckets(Communicator& communicator, std::vector<Gradient<T>> gradients,
          const BucketOptions& options = {});
  ~Buckets();  // not collective; silent between rounds
  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  std::size_t buckets() const { return buckets_.size(); }
  // Returns gradient `i` in the buckets' memory or in the caller's own.
  std::span<T> gradient(std::size_t i) const;
  // Marks gradient `i` as final; it must not be touched until `wait` has returned. Never blocks.
  // Throws the error that has stopped the communicator, or stops it if a sum fails on this rank.
  void ready(std::size_t i);
  // Waits until all buckets are summed on this rank. All gradients must be ready. Then the next
  // round may begin.
  void wait();

 private:
  struct Bucket {
    std::size_t begin = 0, end = 0;  // gradients
    std::size_t missing = 0;         // not ready yet in this round
  };
  std::span<T> in_memory(std::size_t i) const;
  void compare(std::size_t bytes);  // bytes of a bucket

  Communicator& communicator_;
  Reduce operation_;
  std::size_t number_ = 0;  // number among the communicator's buckets, from 1
  std::vector<Gradient<T>> gradients_;
  std::vector<std::size_t> offset_, bucket_of_;  // one entry per gradient
  std::vector<bool> ready_;
  std::vector<Bucket> buckets_;
  RankLink* link_ = nullptr;
};

extern template class Buckets<float>;
extern template class Buckets<double>;
extern template class Buckets<engine::Half>;
extern template class Buckets<engine::BFloat16>;

}  // namespace lockstep::collectives
