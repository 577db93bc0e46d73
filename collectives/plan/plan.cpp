// SPDX-License-Identifier: MIT
#include "collectives/plan/plan.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/quantity.h"

namespace lockstep::collectives {
namespace {

std::string_view operation(const Plan& plan) {
  static constexpr std::array<std::string_view, 4> kNames{"sum", "min", "max", "product"};
  return plan.mean ? "mean" : kNames[std::size_t(plan.op)];
}

std::string_view epilogue_name(Epilogue epilogue) {
  static constexpr std::array<std::string_view, 5> kNames{"", " scale", " squares", " update",
                                                          " round"};
  return kNames[std::size_t(epilogue)];
}

using Out = std::back_insert_iterator<std::string>;

// Prints ranks that name the same place together: "r0 r1.gradient+4096".
void print_operands(Out out, const std::vector<Operand>& operands) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& o = operands[i];
    fmt::format_to(out, " r{}", o.rank);
    const bool last = i + 1 == operands.size() || operands[i + 1].space != o.space ||
                      operands[i + 1].offset != o.offset;
    if (last) fmt::format_to(out, ".{}+{}", name(o.space), o.offset);
  }
}

void print_step(Out out, const Step& step) {
  fmt::format_to(out, "{}{}", name(step.action), epilogue_name(step.epilogue));
  if (step.epilogue == Epilogue::kScale) fmt::format_to(out, " {}", step.scale);
  if (step.count) fmt::format_to(out, " {}:", step.count);
  print_operands(out, step.from);
  if (!step.to.empty()) fmt::format_to(out, " ->");
  print_operands(out, step.to);
  if (step.wire) fmt::format_to(out, " as {}", engine::name(*step.wire));
  if (step.action == Action::kPostSend) fmt::format_to(out, " to r{}", step.peer);
  if (step.action == Action::kPostReceive) fmt::format_to(out, " from r{}", step.peer);
  if (step.action == Action::kWait) fmt::format_to(out, " for step {}", step.post);
  if (step.action == Action::kAwait)
    fmt::format_to(out, " {} of lane {} of r{}", step.phase, step.lane,
                   fmt::join(step.ranks, " r"));
}

void print_plan(Out out, const Plan& plan) {
  fmt::format_to(out, "plan {}: {}, {} of {} in {} [{}, {}), hosts of ranks: {}", plan.name,
                 plan.algorithm, operation(plan), engine::name(plan.dtype), name(plan.space),
                 plan.subject.begin, plan.subject.end, fmt::join(plan.host, " "));
  if (plan.alternate > 0) fmt::format_to(out, ", scratch +{} in turn", plan.alternate);
  fmt::format_to(out, "\n");
  for (std::size_t rank = 0; rank < plan.lanes.size(); ++rank)
    for (std::size_t lane = 0; lane < plan.lanes[rank].size(); ++lane) {
      const Lane& steps = plan.lanes[rank][lane];
      fmt::format_to(out, "  rank {} lane {}\n", rank, lane);
      for (std::size_t i = 0; i < steps.size(); ++i) {
        fmt::format_to(out, "    {} ", i);
        print_step(out, steps[i]);
        fmt::format_to(out, "\n");
      }
    }
}

}  // namespace

std::string_view name(Space space) {
  static constexpr std::array<std::string_view, kSpaces> kNames{"gradient", "weight", "exchange",
                                                                "scratch", "norms"};
  return kNames[std::size_t(space)];
}

std::string_view name(Action action) {
  static constexpr std::array<std::string_view, 7> kNames{
      "reduce", "post_send", "post_receive", "wait", "arrive", "await", "vendor"};
  return kNames[std::size_t(action)];
}

std::vector<Range> owned(const Plan& plan, int rank) {
  std::vector<Range> ranges;
  for (const Lane& lane : plan.lanes[std::size_t(rank)])
    for (const Step& step : lane)
      if (step.epilogue == Epilogue::kUpdate)
        ranges.push_back({step.from[0].offset, step.from[0].offset + step.count});
  return ranges;
}

std::string title(const Plan& plan) {
  return fmt::format("{} ({}, {})", plan.name, plan.algorithm,
                     engine::bytes_text(double(plan.subject.size() * engine::size_of(plan.dtype))));
}

std::string print(const Plan& plan) {
  std::string text;
  print_plan(std::back_inserter(text), plan);
  return text;
}

std::string print(const StepPlan& step) {
  std::string text;
  const Out out = std::back_inserter(text);
  for (std::size_t i = 0; i < step.size(); ++i) {
    fmt::format_to(out, "stage {}", i);
    if (!step[i].after.empty()) fmt::format_to(out, " after {}", fmt::join(step[i].after, " "));
    if (step[i].first_in_line) fmt::format_to(out, ", first in line");
    fmt::format_to(out, "\n");
    print_plan(out, step[i].plan);
  }
  return text;
}

std::uint64_t hash(const StepPlan& step) {
  return engine::hash(print(step));
}

}  // namespace lockstep::collectives
