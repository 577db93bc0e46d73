// SPDX-License-Identifier: MIT
#include "test/collectives/nccl/host_collectives.h"

#include <cstring>

#include "engine/base/error.h"

namespace lockstep::collectives::nccl {
namespace {

using engine::DType;
using Bytes = std::vector<std::byte>;

template <class T>
Bytes sums(const std::vector<Bytes>& inputs, std::size_t count) {
  Bytes result(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = [&](std::size_t rank) {
      T number;
      std::memcpy(&number, inputs[rank].data() + i * sizeof(T), sizeof(T));
      return number;
    };
    const std::size_t first = i % inputs.size();
    T sum = value(first);
    for (std::size_t n = 1; n < inputs.size(); ++n)
      sum = T(sum + value((first + n) % inputs.size()));
    std::memcpy(result.data() + i * sizeof(T), &sum, sizeof(T));
  }
  return result;
}

Bytes sums(const std::vector<Bytes>& inputs, std::size_t count, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return sums<float>(inputs, count);
    case DType::kFloat64:
      return sums<double>(inputs, count);
    case DType::kInt32:
      return sums<std::int32_t>(inputs, count);
    case DType::kInt64:
      return sums<std::int64_t>(inputs, count);
    case DType::kFloat16:
      return sums<engine::Half>(inputs, count);
    case DType::kBFloat16:
      return sums<engine::BFloat16>(inputs, count);
  }
  engine::broken("an element type that the fake does not add");
}

}  // namespace

void run(Kind kind, const std::vector<Operand>& ranks, std::size_t count, DType dtype, int root) {
  const std::size_t part = count * size_of(dtype);
  const bool scatters = kind == Kind::kReduceScatter;
  std::vector<Bytes> inputs;
  for (const Operand& rank : ranks) {
    const auto* const from = static_cast<const std::byte*>(rank.from);
    inputs.emplace_back(from, from + (scatters ? ranks.size() : 1) * part);
  }
  Bytes result;
  if (kind == Kind::kBroadcast) {
    result = inputs[std::size_t(root)];
  } else if (kind == Kind::kAllGather) {
    for (const Bytes& input : inputs) result.insert(result.end(), input.begin(), input.end());
  } else {
    result = sums(inputs, (scatters ? ranks.size() : 1) * count, dtype);
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (scatters) {
      std::memcpy(ranks[rank].to, result.data() + rank * part, part);
    } else {
      std::memcpy(ranks[rank].to, result.data(), result.size());
    }
  }
}

}  // namespace lockstep::collectives::nccl
