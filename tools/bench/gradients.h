// SPDX-License-Identifier: MIT
// Gradients of a model without the model: how large each is, and when backward has it. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::tools::bench {

// In the order in which backward finishes them.
struct Gradient {
  std::size_t elements = 0;
  double ready = 1;  // part of the backward pass after which it is final
};

// Of ResNet-50 (He et al. 2015; version 1, a thousand classes): 161 gradients, 25,557,032 numbers.
// Its convolutions cost about the same, by design, so each takes an equal part of backward.
std::vector<Gradient> resnet50_gradients();
// So many numbers in 64 equal gradients, or as many as there are numbers.
std::vector<Gradient> equal_gradients(std::size_t elements);

// Neighbours that are summed together: cut wherever so many elements are full, as training cuts its
// buckets. `ready`: when the last gradient with a part in it is final.
std::vector<Gradient> in_buckets(const std::vector<Gradient>& gradients, std::size_t elements);

}  // namespace lockstep::tools::bench
