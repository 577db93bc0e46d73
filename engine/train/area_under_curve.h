// SPDX-License-Identifier: MIT
// The area under the receiver operating characteristic (AUC): how likely a positive example has a
// higher score than a negative one. Equal scores count half. Pure; any thread.
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

// Appends the first `rows` rows of outputs with two columns, the logits of the classes 0 and 1.
// The score is the second less the first; `target` (float32, one a row) names the class.
void append_scores(const Tensor& outputs, const Tensor& target, std::size_t rows,
                   std::vector<ScoredExample>& scores);

// NaN where all examples are of one class, or a score is NaN. Sorts a copy: some 100 ns an example.
double area_under_curve(std::vector<ScoredExample> scores);

// Scores as bytes, for other processes of the same kind, and back, appended.
std::string score_bytes(const std::vector<ScoredExample>& scores);
void append_scores(std::string_view bytes, std::vector<ScoredExample>& scores);

}  // namespace lockstep::engine
