// SPDX-License-Identifier: MIT
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/clicks.h"

namespace lockstep::engine::data {
namespace {

// Draws examples when they are read. Numbers are exponential, as logarithms of counts nearly are.
// Of b ids, id i has probability log((i + 2) / (i + 1)) / log(b + 1). So a few are in most
// examples, and most in few. A hidden linear model, the same for train and test, gives the
// probability of a click. It has a weight for each number, and one for each id, drawn by (field,
// id) on use.
class Clicks final : public Dataset {
 public:
  Clicks(const ClicksOptions& options, std::uint64_t count, const std::string& part)
      : count_(count),
        buckets_(options.buckets),
        part_(part),
        examples_(stream_key(options.seed, "generated clicks " + part)),
        hidden_(stream_key(options.seed, "generated clicks' hidden model")),
        fingerprint_(stream_key(options.seed, fmt::format("generated clicks 1 {} {}, ids below {}",
                                                          part, count, options.buckets))) {
    Random random(stream_key(options.seed, "generated clicks' hidden weights"));
    for (double& weight : weights_) weight = random.uniform(-0.5, 0.5);
  }
  std::uint64_t size() const override { return count_; }
  Shape input_shape() const override { return {kClickColumns}; }
  std::size_t target_columns() const override { return 1; }
  std::size_t classes() const override { return 2; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    Random random(examples_, index);
    double logit = kBias;
    for (std::size_t i = 0; i < kClickNumbers; ++i) {
      input[i] = float(-std::log(random.uniform()));
      logit += weights_[i] * (double(input[i]) - 1);
    }
    for (std::size_t f = 0; f < kClickFields; ++f) {
      const double drawn = std::exp(random.uniform() * std::log(double(buckets_) + 1)) - 1;
      const std::uint64_t id =
          std::min<std::uint64_t>(std::uint64_t(std::max(drawn, 0.0)), buckets_ - 1);
      input[kClickNumbers + f] = float(id);
      logit += kSpread * (2 * uniform(random_bits(hidden_, id, f)[0]) - 1);
    }
    target[0] = random.uniform() < 1 / (1 + std::exp(-logit)) ? 1 : 0;
  }
  std::string describe() const override {
    return fmt::format("generated clicks/{}: {} of {} numbers and {} ids below {}", part_, count_,
                       kClickNumbers, kClickFields, buckets_);
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  static constexpr double kBias = -0.5, kSpread = 0.8;
  std::uint64_t count_;
  std::size_t buckets_;
  std::string part_;
  std::uint64_t examples_, hidden_, fingerprint_;
  std::array<double, kClickNumbers> weights_{};
};

}  // namespace

void check_buckets(std::size_t buckets) {
  require(buckets > 0 && buckets <= kMostBuckets,
          "data: clicks of {} ids a field; 1 to {} can be, for ids are float32", buckets,
          kMostBuckets);
}

Sets generated_clicks(ClicksOptions options) {
  constexpr std::uint64_t kMost = std::uint64_t(std::numeric_limits<std::int64_t>::max()) / 64;
  check_buckets(options.buckets);
  require(options.train > 0, "data: 0 generated clicks to train with; at least 1 is needed");
  require(options.train <= kMost && options.test <= kMost,
          "data: {} and {} generated clicks: too many", options.train, options.test);
  Sets sets;
  sets.train = std::make_shared<Clicks>(options, options.train, "train");
  if (options.test > 0) sets.test = std::make_shared<Clicks>(options, options.test, "test");
  return sets;
}

}  // namespace lockstep::engine::data
