// SPDX-License-Identifier: MIT
#include "collectives/communicator/buckets.h"

#include <algorithm>

#include "collectives/communicator/rank_call.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

using engine::require;

// Places all gradients one behind the other. A bucket is a range of them and has a plan.
template <class T>
Buckets<T>::Buckets(Communicator& communicator, std::vector<Gradient<T>> gradients,
                    const BucketOptions& options)
    : communicator_(communicator),
      operation_(options.operation),
      gradients_(std::move(gradients)),
      ready_(gradients_.size(), false) {
  communicator.agree(
      {RankCall::Kind::kBuckets, engine::dtype_of<T>(), int(operation_), gradients_.size(), 0});
  number_ = ++communicator.buckets_made_;
  if (gradients_.empty()) communicator.fail_together("buckets need at least one gradient");
  if (communicator.reproducible_ && operation_ == Reduce::kProduct)
    communicator.fail_together(
        "products of floating point are not reproducible; buckets have sums, means, minima or "
        "maxima");
  compare(options.bytes);
  const std::size_t most = std::max<std::size_t>(1, options.bytes / sizeof(T));
  std::size_t end = 0, begin = 0;  // elements so far; before the current bucket
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (buckets_.empty() || end - begin + gradients_[i].count > most) {
      buckets_.push_back({i, i, 0});
      begin = end;
    }
    buckets_.back().end = i + 1;
    offset_.push_back(end);
    bucket_of_.push_back(buckets_.size() - 1);
    end += gradients_[i].count;
  }
  StepPlan plan;
  std::size_t scratch = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    bucket.missing = bucket.end - bucket.begin;
    Request request = communicator.request(
        fmt::format("bucket {} (gradients {} to {})", b, bucket.begin, bucket.end - 1),
        engine::dtype_of<T>(), options.operation);
    request.subject = {offset_[bucket.begin],
                       bucket.end < offset_.size() ? offset_[bucket.end] : end};
    request.rotation = int(b);
    request.scratch = scratch;
    const Algorithm& algorithm = communicator.algorithm_for(request);
    scratch += algorithm.scratch(request);
    plan.push_back({algorithm.make(request), {}, false});
  }
  link_ = &communicator.link(std::move(plan), end * sizeof(T), scratch * sizeof(T), "buckets");
}

// Compares what the plans do not show: the elements of each gradient and the bytes of a bucket.
// Rank 0 sends its numbers to all ranks. Then each rank sends its first difference, so that all
// throw the same error.
template <class T>
void Buckets<T>::compare(std::size_t bytes) {
  std::vector<double> mine{double(bytes)};
  for (const Gradient<T>& gradient : gradients_) mine.push_back(double(gradient.count));
  std::vector<double> first = mine;
  communicator_.through_area(std::span(first), Reduce::kSum, communicator_.rank() != 0);
  // Two numbers per rank: the position of its first difference (from 1; 0: none), and its value
  // there.
  std::vector<double> differences(2 * std::size_t(communicator_.size()));
  const auto [here, there] = std::ranges::mismatch(mine, first);
  if (here != mine.end()) {
    double* const row = &differences[2 * std::size_t(communicator_.rank())];
    row[0] = double(here - mine.begin() + 1), row[1] = *here;
  }
  communicator_.through_area(std::span(differences), Reduce::kSum, false);
  for (std::size_t rank = 0; rank < differences.size() / 2; ++rank) {
    const auto at = std::size_t(differences[2 * rank]);
    if (at == 0) continue;
    const std::string what =
        at == 1 ? "how many bytes one holds" : fmt::format("gradient {}", at - 2);
    communicator_.fail_together(fmt::format(
        "buckets differ in {}: {} {} on rank 0, {} on rank {}; all ranks must give the same "
        "gradients in the same order",
        what, first[at - 1], at == 1 ? "bytes" : "elements", differences[2 * rank + 1], rank));
  }
}

template <class T>
Buckets<T>::~Buckets() {
  // If a round has begun, the other ranks wait for this rank's part, or will.
  if (std::find(ready_.begin(), ready_.end(), true) != ready_.end())
    communicator_.leave("left with buckets in flight");
  communicator_.unlink(*link_);
}

template <class T>
std::span<T> Buckets<T>::in_memory(std::size_t i) const {
  return {reinterpret_cast<T*>(link_->data()) + offset_[i], gradients_[i].count};
}

template <class T>
std::span<T> Buckets<T>::gradient(std::size_t i) const {
  require(i < gradients_.size(), "there is no gradient {}, there are {}", i, gradients_.size());
  if (gradients_[i].data != nullptr) return {gradients_[i].data, gradients_[i].count};
  return in_memory(i);
}

template <class T>
void Buckets<T>::ready(std::size_t i) {
  require(i < gradients_.size(), "there is no gradient {}, there are {}", i, gradients_.size());
  require(!ready_[i], "gradient {} is ready twice; wait() begins the next round", i);
  ready_[i] = true;
  if (gradients_[i].data != nullptr)
    std::copy_n(gradients_[i].data, gradients_[i].count, in_memory(i).data());
  const std::size_t bucket = bucket_of_[i];
  communicator_.guarded([&] {
    if (--buckets_[bucket].missing == 0 && !communicator_.reproducible_) link_->start(int(bucket));
    link_->progress();
  });
}

template <class T>
void Buckets<T>::wait() {
  const auto late = std::find(ready_.begin(), ready_.end(), false);
  require(late == ready_.end(), "wait before gradient {} is ready", late - ready_.begin());
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Bucket& bucket = buckets_[b];
    if (communicator_.reproducible_) {
      T* const data = reinterpret_cast<T*>(link_->data());
      const std::size_t last = bucket.end - 1, end = offset_[last] + gradients_[last].count;
      const std::span<T> values(data + offset_[bucket.begin], data + end);
      // Reproducible sums use the communicator's areas, as all others do.
      communicator_.agree(
          {RankCall::Kind::kBucket, engine::dtype_of<T>(), int(b), values.size(), number_});
      communicator_.reduce_reproducibly(values, operation_);
    } else {
      communicator_.guarded([&] { link_->executor().wait(int(b), "buckets"); });
    }
    for (std::size_t i = bucket.begin; i < bucket.end; ++i)
      if (gradients_[i].data != nullptr)
        std::copy_n(in_memory(i).data(), gradients_[i].count, gradients_[i].data);
    bucket.missing = bucket.end - bucket.begin;
  }
  std::fill(ready_.begin(), ready_.end(), false);
}

template class Buckets<float>;
template class Buckets<double>;
template class Buckets<engine::Half>;
template class Buckets<engine::BFloat16>;

}  // namespace lockstep::collectives
