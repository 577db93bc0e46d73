// SPDX-License-Identifier: MIT
#include "collectives/communicator/rank_call.h"

#include <fmt/core.h>

#include <iterator>
#include <string_view>

#include "collectives/communicator/communicator.h"

namespace lockstep::collectives {
namespace {

std::string_view operation_name(Reduce operation) {
  static constexpr std::array<std::string_view, 5> kNames{"sum", "mean", "min", "max", "product"};
  return kNames[std::size_t(operation)];
}

}  // namespace

std::array<double, RankCall::kNumbers> RankCall::numbers() const {
  return {double(kind), double(dtype), double(detail), double(count), double(memory)};
}

std::string RankCall::describe(const double* numbers) {
  std::string text;
  describe(numbers, text);
  return text;
}

void RankCall::describe(const double* numbers, std::string& text) {
  const auto detail = int(numbers[2]);
  const auto count = std::size_t(numbers[3]), memory = std::size_t(numbers[4]);
  const auto type = engine::name(engine::DType(int(numbers[1])));
  const auto out = std::back_inserter(text);
  switch (Kind(int(numbers[0]))) {
    case Kind::kAllReduce:
      fmt::format_to(out, "all_reduce of {} {} ({}", count, type, operation_name(Reduce(detail)));
      if (memory != 0) fmt::format_to(out, ", in allocated memory {}", memory);
      text += ")";
      return;
    case Kind::kBroadcast:
      fmt::format_to(out, "broadcast of {} {} from rank {}", count, type, detail);
      return;
    case Kind::kAllocate:
      fmt::format_to(out, "allocate of {} {}", count, type);
      return;
    case Kind::kBuckets:
      fmt::format_to(out, "buckets for {} gradient{} of {} ({})", count, count == 1 ? "" : "s",
                     type, operation_name(Reduce(detail)));
      return;
    case Kind::kBucket:
      fmt::format_to(out, "bucket {} of buckets {}, of {} {}", detail, memory, count, type);
      return;
    case Kind::kBarrier:
      text += "barrier";
      return;
  }
  text += "something else";
}

void RankCall::describe_with_bytes(std::string& text) const {
  describe(numbers().data(), text);
  if (kind != Kind::kBuckets)
    fmt::format_to(std::back_inserter(text), ", {} bytes", count * engine::size_of(dtype));
}

}  // namespace lockstep::collectives
