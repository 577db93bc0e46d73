// SPDX-License-Identifier: MIT
#include "collectives/run/host_sum.h"

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

double float64_at(const std::byte* numbers, std::size_t i) {
  return reinterpret_cast<const double*>(numbers)[i];
}

double sum_at(std::span<const std::byte* const> from, std::size_t i) {
  if (from.size() == 1) return float64_at(from[0], i);
  const std::size_t half = (from.size() + 1) / 2;
  return sum_at(from.first(half), i) + sum_at(from.subspan(half), i);
}

}  // namespace

void sum_on_host(const engine::ReduceArguments& a) {
  engine::invariant(a.dtype == engine::DType::kFloat64 && a.op == engine::ReduceOp::kSum &&
                        a.epilogue == engine::Epilogue::kNone && !a.target,
                    "the host adds numbers of float64, and does nothing else with them");
  for (std::size_t i = 0; i < a.count; ++i) {
    const double result = sum_at(a.from, i);
    for (std::byte* const to : a.to) reinterpret_cast<double*>(to)[i] = result;
  }
}

}  // namespace lockstep::collectives
