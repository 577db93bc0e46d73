// SPDX-License-Identifier: MIT
#include "test/strategies/inspection.h"

#include "collectives/check/verifier.h"

namespace lockstep::test {

using strategies::Mirror;
using strategies::Synchronous;

namespace {

// Gives access to the mirrors of a synchronous strategy.
class Inspection : Synchronous {
 public:
  static const std::vector<std::unique_ptr<Mirror>>& mirrors_of(const Synchronous& strategy) {
    return (strategy.*&Inspection::mirrors)();
  }
};

Mirror& mirror(const Synchronous& strategy, int local) {
  return *Inspection::mirrors_of(strategy).at(std::size_t(local));
}

}  // namespace

std::string verify(const Synchronous& strategy) {
  const auto first = strategy.step().plan.begin();
  const collectives::StepPlan step(first, first + std::ptrdiff_t(strategy.step().stages.of_step));
  return collectives::verify(step, collectives::Goal::kUpdateEverywhere);
}

std::vector<double> weights(const Synchronous& strategy, int local) {
  Mirror& m = mirror(strategy, local);
  m.download();
  std::vector<double> values(m.graph.parameters());
  const std::byte* const from = m.host_weights();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = engine::number_at(from, m.graph.dtype(), i);
  return values;
}

std::size_t owned_elements(const Synchronous& strategy, int local) {
  return mirror(strategy, local).owned_elements();
}

std::int64_t overlapped(const Synchronous& strategy) {
  std::int64_t sum = 0;
  for (const auto& m : Inspection::mirrors_of(strategy)) sum += m->overlapped.updates;
  return sum;
}

std::int64_t reductions_beside(const Synchronous& strategy) {
  std::int64_t sum = 0;
  for (const auto& m : Inspection::mirrors_of(strategy)) sum += m->overlapped.reductions;
  return sum;
}

void corrupt(const Synchronous& strategy, int local, std::size_t element) {
  Mirror& m = mirror(strategy, local);
  m.download();
  m.host_weights()[element * engine::size_of(m.graph.dtype())] ^= std::byte{1};
  m.upload();
}

}  // namespace lockstep::test
