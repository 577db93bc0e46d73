// SPDX-License-Identifier: MIT
// The area under the receiver operating characteristic (AUC): the probability that a positive
// example has a higher score than a negative one. Equal scores count half. Pure functions;
// thread-safe.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

struct ScoredExample {
  float score = 0;
  bool positive = false;
};

// Appends the scores of the first `rows` rows of outputs with two columns, the logits of classes 0
// and 1. A score is the second logit minus the first; `target` (float32, one per row) is the class.
void append_scores(const Tensor& outputs, const Tensor& target, std::size_t rows,
                   std::vector<ScoredExample>& scores);

// Returns NaN if all examples are of one class or a score is NaN. Sorts a copy: some 100 ns per
// example.
double area_under_curve(std::vector<ScoredExample> scores);

// Returns scores as bytes for other processes of the same kind; the second function appends them
// back.
std::string score_bytes(const std::vector<ScoredExample>& scores);
void append_scores(std::string_view bytes, std::vector<ScoredExample>& scores);

}  // namespace lockstep::engine
