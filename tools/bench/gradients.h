// SPDX-License-Identifier: MIT
// Gradients of a model without the model: the size of each, and when backward finishes it. Pure.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::tools::bench {

// Lists of gradients are in the order in which backward finishes them.
struct Gradient {
  std::size_t elements = 0;
  double ready = 1;  // fraction of backward until it is final
};

// Returns the gradients of ResNet-50 (He et al. 2015; version 1, a thousand classes): 161
// gradients, 25,557,032 numbers. By design its convolutions cost about the same, so each takes an
// equal part of backward.
std::vector<Gradient> resnet50_gradients();
// Returns `elements` numbers in 64 equal gradients, or one gradient per number if there are fewer.
std::vector<Gradient> equal_gradients(std::size_t elements);

// Returns adjacent gradients joined to buckets of `elements`, cut as training cuts its buckets. A
// bucket is ready when the last gradient with a part in it is final.
std::vector<Gradient> in_buckets(const std::vector<Gradient>& gradients, std::size_t elements);

}  // namespace lockstep::tools::bench
