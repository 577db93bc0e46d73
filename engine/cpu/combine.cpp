// SPDX-License-Identifier: MIT
// Up to four sources are added in registers, four vectors of each at a time; other operations
// combine two. More sources are split into halves, each combined into a block that stays in the L1
// cache. 16-bit numbers are float32 in registers and in those blocks, and are rounded when they are
// stored to targets.
//
// Several targets are memory of several cores. Their lines are prefetched for writing. Otherwise a
// line that another core has changed moves twice, first for reading and then for writing, and
// stores wait for their lines one by one. On some processors it is faster to prefetch the lines of
// in-place targets for reading (`read_ahead`). Targets that are disjoint from all sources cost a
// third pass over memory if they are not cached; `stream` writes whole lines without fetching them
// first.
#include "engine/cpu/combine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "engine/cpu/combine_kernels.h"

namespace lockstep::engine::cpu {
namespace {

// Combines as many sources as registers hold. The kernel takes all whole groups at once; the
// elements before and after them go through a group in local memory.
class Pieces {
 public:
  explicit Pieces(const Combination& c)
      : c_(c),
        source_(size_of(c.source)),
        target_(c.target == c.source ? source_ : size_of(c.target)),
        group_shift_(std::countr_zero(kGroupBytes / std::max(source_, sizeof(float)))) {
    groups_.source = c.source, groups_.target = c.target;
    if (source_ == 2 && c.from.size() == 1 && c.target == c.source && c.scale == 1) {
      // Copies the bits; 16-bit numbers would otherwise be float32 in between.
      groups_.source = groups_.target = DType::kInt32;
      ++group_shift_;
    }
    groups_.op = c.from.size() > 1 ? c.op : ReduceOp::kSum;  // one is its own minimum
    groups_.sources = c.from.size();
    groups_.scale = c.scale;
  }

  void run() {
    if (c_.to.empty()) return;
    const Targets all{.to = c_.to, .first = c_.write_at * target_};
    const auto border = c_.stream ? elements_to_border(all, target_) : std::nullopt;
    const std::size_t lead = std::min(border.value_or(0), c_.count);
    const std::size_t whole = (c_.count - lead) >> group_shift_;
    const std::size_t rest = lead + (whole << group_shift_);
    if (lead > 0) part(0, lead);
    if (whole > 0) {
      point(lead);
      groups_.targets = {c_.to, all.first + lead * target_, nullptr, border.has_value()};
      groups_.groups = whole;
      groups_.read_ahead = c_.read_ahead && is_in_place(all);
      combine_groups(groups_);
    }
    if (rest < c_.count) part(rest, c_.count - rest);
  }

 private:
  bool is_in_place(const Targets& all) const {
    const std::size_t first = c_.read_at * source_;
    return c_.to.size() > 1 && std::any_of(c_.from.begin(), c_.from.end(), [&](const auto* from) {
             return from + first == all.at(0);
           });
  }

  void point(std::size_t at) {
    for (std::size_t s = 0; s < c_.from.size(); ++s)
      groups_.from[s] = c_.from[s] + (c_.read_at + at) * source_;
  }

  // Combines less than a group, through groups in local memory.
  [[gnu::noinline]] void part(std::size_t at, std::size_t count) {
    LocalGroup sources[kSummedAtOnce], result;
    point(at);
    for (std::size_t s = 0; s < c_.from.size(); ++s) {
      std::byte* const local = sources[s].bytes;
      std::memcpy(local, groups_.from[s], count * source_);
      std::memset(local + count * source_, 0, ((std::size_t{1} << group_shift_) - count) * source_);
      groups_.from[s] = local;
    }
    std::byte* const to[] = {result.bytes};
    groups_.targets = {.to = to};
    groups_.groups = 1;
    combine_groups(groups_);
    for (std::byte* const target : c_.to)
      std::memcpy(target + (c_.write_at + at) * target_, result.bytes, count * target_);
  }

  const Combination& c_;
  std::size_t source_, target_;  // bytes of an element
  int group_shift_;              // log2 of the elements of a group
  CombineGroups groups_;
};

// Returns how many sources one pass combines. Only sums, the common case, take more than two.
std::size_t most_in_registers(ReduceOp op) {
  return op == ReduceOp::kSum ? kSummedAtOnce : 2;
}

struct alignas(64) Block {
  std::array<std::byte, kBlock * sizeof(double)> bytes;
};

// Combines more sources than registers hold, block by block.
void combine_halves(const Combination& whole) {
  const std::size_t half = (whole.from.size() + 1) / 2;
  Block left, right;
  std::byte* const to_left[] = {left.bytes.data()};
  std::byte* const to_right[] = {right.bytes.data()};
  const std::byte* const both[] = {left.bytes.data(), right.bytes.data()};
  const DType between = size_of(whole.source) == 2 ? DType::kFloat32 : whole.source;
  for (std::size_t at = 0; at < whole.count; at += kBlock) {
    Combination part{.source = whole.source, .target = between, .op = whole.op};
    part.count = std::min(kBlock, whole.count - at);
    part.read_at = whole.read_at + at;
    part.from = whole.from.first(half), part.to = to_left;
    combine(part);
    part.from = whole.from.subspan(half), part.to = to_right;
    combine(part);
    part.source = between, part.target = whole.target;
    part.read_at = 0, part.write_at = whole.write_at + at;
    part.from = both, part.to = whole.to;
    part.scale = whole.scale, part.stream = whole.stream;
    combine(part);
  }
}

}  // namespace

void combine(const Combination& c) {
  c.from.size() <= most_in_registers(c.op) ? Pieces(c).run() : combine_halves(c);
}

bool scales_in_registers(DType dtype, double scale) {
  if (dtype == DType::kFloat32) return double(float(scale)) == scale;
  return !is_integer(dtype);
}

}  // namespace lockstep::engine::cpu
