// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/cluster/placement_rules.h"

#include <charconv>

#include "collectives/cost/size_rules.h"
#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

using engine::Code;
using engine::fail;
using engine::require;

constexpr std::string_view kPartitions =
    "none, fixed:SHARDS, min:BYTES or max:BYTES, e.g. max:4MiB";

std::size_t shards(std::string_view text, std::string_view number) {
  std::size_t value = 0;
  const char* end = number.data() + number.size();
  const auto [rest, error] = std::from_chars(number.data(), end, value);
  require(error == std::errc() && rest == end && value > 0,
          "'{}' is no way to cut variables: '{}' is no number of shards from 1 on; write {}", text,
          number, kPartitions);
  return value;
}

std::size_t bytes(std::string_view text, std::string_view size) {
  std::size_t value = 0;
  try {
    value = collectives::parse_size(size);
  } catch (const engine::Error& error) {
    fail(error.code(), "'{}' is no way to cut variables: {}", text, error.what());
  }
  require(value > 0, "'{}' is no way to cut variables: shards need at least 1 byte", text);
  return value;
}

}  // namespace

Placer parse_placement(std::string_view text) {
  if (text == "round_robin") return RoundRobin{};
  if (text == "greedy") return GreedyBytes{};
  fail(Code::kInvalid, "'{}' is no way to place variables: write round_robin or greedy", text);
}

Partitioner parse_partition(std::string_view text) {
  if (text == "none") return WholeVariables{};
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  if (colon != std::string_view::npos) {
    const std::string_view value = text.substr(colon + 1);
    if (kind == "fixed") return FixedShards{shards(text, value)};
    if (kind == "min") return MinShardBytes{bytes(text, value)};
    if (kind == "max") return MaxShardBytes{bytes(text, value)};
  }
  fail(Code::kInvalid, "'{}' is no way to cut variables: write {}", text, kPartitions);
}

}  // namespace lockstep::strategies
