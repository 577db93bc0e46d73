// SPDX-License-Identifier: MIT
#include "engine/cpu/losses.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/ops/checks.h"

namespace lockstep::engine::cpu {
namespace {

using Row = Eigen::Map<Eigen::ArrayXf>;
using ConstRow = Eigen::Map<const Eigen::ArrayXf>;

std::size_t first_largest(const float* numbers, std::size_t count) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (numbers[i] > numbers[best]) best = i;
  }
  return best;
}

// Computes powers = exp(logits - largest) and returns their sum. `powers` may alias `logits`.
double exponentials(const float* logits, std::size_t count, float largest, float* powers) {
  Row to(powers, Eigen::Index(count));
  to = (ConstRow(logits, Eigen::Index(count)) - largest).exp();
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += double(powers[i]);
  return sum;
}

// Returns the same sum without keeping the powers.
double sum_of_exponentials(const float* logits, std::size_t count, float largest) {
  std::array<float, 64> powers;
  double sum = 0;
  for (std::size_t i = 0; i < count; i += powers.size()) {
    sum += exponentials(logits + i, std::min(powers.size(), count - i), largest, powers.data());
  }
  return sum;
}

double sum_below(const float* logits, std::size_t count, float largest) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += double(logits[i]) - double(largest);
  return sum;
}

}  // namespace

void softmax(std::size_t rows, std::size_t classes, const float* logits, float* probabilities) {
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = logits + r * classes;
    float* to = probabilities + r * classes;
    const double sum = exponentials(from, classes, from[first_largest(from, classes)], to);
    Row(to, Eigen::Index(classes)) *= float(1 / sum);
  }
}

void softmax_cross_entropy(std::size_t rows, std::size_t classes, double smoothing,
                           const float* logits, const float* target, const std::int64_t* ids,
                           double weight, float* dlogits, double* losses, double* correct) {
  const double spread = smoothing / double(classes);  // smoothed label of each class
  for (std::size_t r = 0; r < rows; ++r) {
    const float* from = logits + r * classes;
    const std::size_t wanted = class_of(target[r], classes, r, ids);
    const std::size_t found = first_largest(from, classes);
    const float largest = from[found];
    double below = double(from[wanted]) - double(largest);
    if (smoothing > 0) below = (1 - smoothing) * below + spread * sum_below(from, classes, largest);
    double sum = 0;
    if (dlogits == nullptr) {
      sum = sum_of_exponentials(from, classes, largest);
    } else {
      float* to = dlogits + r * classes;
      sum = exponentials(from, classes, largest, to);
      const double at_wanted = double(to[wanted]);
      Row(to, Eigen::Index(classes)) *= float(weight / sum);
      if (smoothing > 0) Row(to, Eigen::Index(classes)) -= float(spread * weight);
      to[wanted] = float((at_wanted / sum - (1 - smoothing) - spread) * weight);
    }
    const double loss = std::log(sum) - below;
    if (losses != nullptr) losses[r] = loss;
    if (correct != nullptr) correct[r] = found == wanted && !std::isnan(loss) ? 1.0 : 0.0;
  }
}

void squared_error(std::size_t rows, std::size_t columns, const float* y, const float* target,
                   double weight, float* dy, double* losses) {
  const double factor = 2 * weight / double(columns);
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      const double difference = double(y[r * columns + c]) - double(target[r * columns + c]);
      sum += difference * difference;
      if (dy != nullptr) dy[r * columns + c] = float(difference * factor);
    }
    if (losses != nullptr) losses[r] = sum / double(columns);
  }
}

}  // namespace lockstep::engine::cpu
