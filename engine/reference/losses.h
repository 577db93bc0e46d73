// SPDX-License-Identifier: MIT
// Reference: losses. Softmax subtracts the largest logit first, so that nothing overflows. The loss
// of a row is log(sum of exp(logit)) - logit of its class. With label smoothing, (1 - smoothing)
// times that logit plus smoothing times the mean logit replaces it.
#pragma once
#include <cmath>

#include "engine/ops/checks.h"
#include "engine/ops/definitions.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

// Returns the index of the largest of `count` numbers (ties: the first).
template <class T>
std::size_t first_largest(const T* numbers, std::size_t count) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (numbers[i] > numbers[best]) best = i;
  }
  return best;
}

template <class T>
double sum_of_powers(const T* logits, std::size_t count, double largest) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(double(logits[i]) - largest);
  return sum;
}

template <class T>
void ReferenceOps<T>::softmax(const StepState* state, Tensor logits, Tensor probabilities) {
  const std::size_t rows = rows_in_use(state, {logits, probabilities});
  const std::size_t classes = logits.columns();
  check_batch(logits, kType, classes, "softmax: logits");
  check_batch(probabilities, kType, classes, "softmax: probabilities");
  for (std::size_t r = 0; r < rows; ++r) {
    const T* from = logits.as<T>() + r * classes;
    T* to = probabilities.as<T>() + r * classes;
    const double largest = double(from[first_largest(from, classes)]);
    const double sum = sum_of_powers(from, classes, largest);
    for (std::size_t c = 0; c < classes; ++c) to[c] = T(std::exp(double(from[c]) - largest) / sum);
  }
}

template <class T>
void ReferenceOps<T>::softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits,
                                            Tensor target, Tensor dlogits, Tensor losses,
                                            Tensor correct) {
  const std::size_t rows = rows_in_use(state, {logits, target, dlogits, losses, correct});
  const std::size_t classes = logits.columns();
  check_batch(logits, kType, classes, "cross entropy: logits");
  check_batch(dlogits, kType, classes, "cross entropy: dlogits");
  check_batch(target, DType::kFloat32, 1, "cross entropy: target");
  check_batch(losses, DType::kFloat64, 1, "cross entropy: losses");
  check_batch(correct, DType::kFloat64, 1, "cross entropy: correct");
  const double weight = state->inverse_examples * state->loss_scale;
  for (std::size_t r = 0; r < rows; ++r) {
    const T* from = logits.as<T>() + r * classes;
    const std::size_t wanted = class_of(target.as<float>()[r], classes, r, state->ids);
    const std::size_t found = first_largest(from, classes);
    const double largest = double(from[found]);
    const double sum = sum_of_powers(from, classes, largest);
    double below = double(from[wanted]) - largest;  // mean under the target distribution
    if (smoothing > 0) {
      double all = 0;
      for (std::size_t c = 0; c < classes; ++c) all += double(from[c]) - largest;
      below = (1 - smoothing) * below + smoothing / double(classes) * all;
    }
    const double loss = std::log(sum) - below;
    if (losses) losses.as<double>()[r] = loss;
    if (correct) correct.as<double>()[r] = found == wanted && !std::isnan(loss) ? 1.0 : 0.0;
    for (std::size_t c = 0; dlogits && c < classes; ++c) {
      const double probability = std::exp(double(from[c]) - largest) / sum;
      const double q = (c == wanted ? 1 - smoothing : 0.0) + smoothing / double(classes);
      dlogits.as<T>()[r * classes + c] = T((probability - q) * weight);
    }
  }
}

template <class T>
void ReferenceOps<T>::squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                                    Tensor losses) {
  const std::size_t rows = rows_in_use(state, {y, target, dy, losses});
  const std::size_t columns = y.columns();
  check_batch(y, kType, columns, "squared error: y");
  check_batch(dy, kType, columns, "squared error: dy");
  check_batch(target, DType::kFloat32, columns, "squared error: target");
  check_batch(losses, DType::kFloat64, 1, "squared error: losses");
  const double weight = state->inverse_examples * state->loss_scale;
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t at = r * columns + c;
      const double difference = double(y.as<T>()[at]) - double(target.as<float>()[at]);
      sum += difference * difference;
      if (dy) dy.as<T>()[at] = T(2 * difference / double(columns) * weight);
    }
    if (losses) losses.as<double>()[r] = sum / double(columns);
  }
}

template <class T>
double ReferenceOps<T>::batch_sum(const StepState* state, Tensor rows) {
  check_batch(rows, DType::kFloat64, 1, "batch sum: rows");
  return balanced_sum(rows.as<double>(), rows_in_use(state, {rows}));
}

}  // namespace lockstep::engine
