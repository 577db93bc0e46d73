// SPDX-License-Identifier: MIT
#include "collectives/algorithms/steps.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/base/error.h"

namespace lockstep::collectives {

Step reduce(std::size_t count, std::vector<Operand> from, std::vector<Operand> to,
            Epilogue epilogue) {
  Step step{.action = Action::kReduce, .count = count};
  step.epilogue = epilogue;
  step.from = std::move(from);
  step.to = std::move(to);
  return step;
}

Step post_send(std::size_t count, Operand from, int peer, std::optional<DType> wire) {
  Step step{.action = Action::kPostSend, .count = count};
  step.wire = wire;
  step.from = {from};
  step.peer = peer;
  return step;
}

Step post_receive(std::size_t count, Operand to, int peer, std::optional<DType> wire) {
  Step step{.action = Action::kPostReceive, .count = count};
  step.wire = wire;
  step.to = {to};
  step.peer = peer;
  return step;
}

Step wait(int post) {
  Step step{.action = Action::kWait};
  step.post = post;
  return step;
}

Step arrive() {
  return {.action = Action::kArrive};
}

Step await(std::vector<int> ranks, int phase, int lane) {
  Step step{.action = Action::kAwait};
  step.ranks = std::move(ranks);
  step.lane = lane;
  step.phase = phase;
  return step;
}

std::vector<Operand> everywhere(const std::vector<int>& ranks, Space space, std::size_t offset) {
  std::vector<Operand> list;
  for (const int rank : ranks) list.push_back({rank, space, offset});
  return list;
}

std::vector<int> all_ranks(const Request& request) {
  std::vector<int> ranks(request.host.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

RanksOfHosts ranks_of_hosts(const Request& request) {
  std::map<int, int> count;
  for (const int host : request.host) ++count[host];
  RanksOfHosts found;
  for (const auto& [host, ranks] : count) {
    found.least = found.least == 0 ? ranks : std::min(found.least, ranks);
    found.most = std::max(found.most, ranks);
  }
  return found;
}

Range slice(Range subject, int part, int parts) {
  const std::size_t first = subject.begin / engine::kBlock;
  const std::size_t last = (subject.end + engine::kBlock - 1) / engine::kBlock;
  const auto cut = [&](int p) {
    const std::size_t block = first + (last - first) * std::size_t(p) / std::size_t(parts);
    return std::clamp(block * engine::kBlock, subject.begin, subject.end);
  };
  return {cut(part), cut(part + 1)};
}

std::optional<DType> wire_of_sums(const Request& request) {
  const bool travels =
      std::ranges::any_of(request.host, [&](int host) { return host != request.host.front(); });
  return travels ? request.wire : std::nullopt;
}

void finish_sum(Step& step, const Request& request) {
  if (request.mean) {
    step.epilogue = Epilogue::kScale;
    step.scale = 1.0 / double(request.host.size());
  } else if (wire_of_sums(request)) {
    step.epilogue = Epilogue::kRound;
  }
}

void require_possible(const Request& request) {
  engine::require(!request.host.empty(), "{}: a plan needs at least one rank", request.name);
  engine::require(request.subject.begin <= request.subject.end, "{}: the range [{}, {}) is none",
                  request.name, request.subject.begin, request.subject.end);
  engine::require(!request.mean || !engine::is_integer(request.dtype),
                  "{}: the mean of {} is no {}; ask for the sum", request.name,
                  engine::name(request.dtype), engine::name(request.dtype));
  engine::require(!request.mean || request.op == ReduceOp::kSum,
                  "{}: a mean is made of a sum, not of a minimum, maximum or product",
                  request.name);
  engine::require(!request.mean || !request.squares,
                  "{}: squares are taken of sums; ask for the mean without them", request.name);
  engine::require(
      !request.wire || (request.dtype == DType::kFloat32 && *request.wire == DType::kBFloat16 &&
                        !request.mean && request.op == ReduceOp::kSum),
      "{}: plain sums of float32 can travel as bfloat16, and nothing else as another "
      "type",
      request.name);
  engine::require(!request.update || (request.op == ReduceOp::kSum && !request.mean &&
                                      !request.squares && request.space == Space::kGradient),
                  "{}: an update takes the plain sum of gradients", request.name);
}

Plan empty_plan(const Request& request, std::string algorithm, int lanes) {
  require_possible(request);
  Plan plan;
  plan.name = request.name;
  plan.algorithm = std::move(algorithm);
  plan.dtype = request.dtype;
  plan.op = request.op;
  plan.mean = request.mean;
  plan.space = request.space;
  plan.subject = request.subject;
  plan.host = request.host;
  plan.lanes.assign(request.host.size(), std::vector<Lane>(std::size_t(lanes)));
  return plan;
}

}  // namespace lockstep::collectives
