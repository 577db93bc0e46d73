// SPDX-License-Identifier: MIT
#include "tools/bench/reproducible.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "collectives/communicator/communicator.h"
#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/cpu/cpu_device.h"
#include "engine/device/buffer.h"
#include "tools/bench/fields.h"
#include "tools/bench/other_work.h"

namespace lockstep::tools::bench {
namespace {

using collectives::Communicator;
using collectives::Reduce;

// Returns a number; the numbers span some twenty binary digits, in every dtype.
double random_number(int rank, std::size_t i) {
  const auto random = engine::random_bits(1, std::uint64_t(rank), i);
  return (engine::uniform(random[0]) - 0.5) * std::ldexp(1.0, int(random[1] % 20) - 14);
}

template <class T>
void write_numbers(std::byte* data, std::size_t count, int rank) {
  using Number = std::conditional_t<sizeof(T) == 2, float, double>;
  T* const to = reinterpret_cast<T*>(data);
  for (std::size_t i = 0; i < count; ++i) to[i] = T(Number(random_number(rank, i)));
}

// Calls `body` with a value of the C++ type of `dtype`.
template <class Body>
void with_type(engine::DType dtype, const Body& body) {
  switch (dtype) {
    case engine::DType::kFloat32:
      return body(float{});
    case engine::DType::kFloat64:
      return body(double{});
    case engine::DType::kFloat16:
      return body(engine::Half{});
    case engine::DType::kBFloat16:
      return body(engine::BFloat16{});
    case engine::DType::kInt32:
    case engine::DType::kInt64:
      break;
  }
  engine::broken("sums of integers are reproducible");
}

Fields reproducible_fields(const Reproducible& r) {
  Fields all{{"bytes", r.bytes},
             {"count", r.count},
             {"algorithm", r.choice.algorithm},
             {"plain_us", r.plain_us},
             {"reproducible_us", r.reproducible_us},
             {"times", r.times()},
             {"bits", fmt::format("{:016x}", r.bits)},
             {"wrong", wrong_json(r.wrong)},
             {"chosen", r.choice.chosen},
             {"disturbed", r.wait.disturbed()}};
  add_task(all, r.task);
  all.emplace_back("reason", r.choice.reason);  // last, since it has commas
  return all;
}

}  // namespace

Reproducible reproducible(const Rank& rank, Meeting& meeting, const Setting& setting,
                          const Choice& choice, std::size_t count) {
  Reproducible found;
  const Task& task = setting.task;
  found.task = task;
  found.count = count, found.bytes = count * engine::size_of(task.dtype);
  found.choice = choice;
  const auto device = engine::cpu_device();
  collectives::CommunicatorOptions options;
  options.deadline = rank.job.deadline();
  options.algorithm = choice.algorithm;
  const auto ops = [&] { return device->ops(engine::DType::kFloat32, {.threads = 1}); };
  Communicator plain(rank.job.bootstrap(), ops(), options, rank.job.network());
  options.reproducible = true;
  Communicator same(rank.job.bootstrap(), ops(), options, rank.job.network());
  engine::Buffer memory(found.bytes);
  const Reduce operation = task.mean ? Reduce::kMean : Reduce::kSum;
  const auto reduce = [&](Communicator& c) {
    with_type(task.dtype, [&]<class T>(T) {
      c.all_reduce(std::span(reinterpret_cast<T*>(memory.data()), count), operation);
    });
  };
  std::vector<Variant> variants{{memory.data(), memory.data(), true, [&] { reduce(plain); }},
                                {memory.data(), memory.data(), true, [&] { reduce(same); }}};
  found.wrong = time_in_turns(rank, meeting, setting, count, variants);
  found.plain_us = variants[0].times.median, found.reproducible_us = variants[1].times.median;
  found.wait = worse(variants[0].times.wait, variants[1].times.wait);
  with_type(task.dtype,
            [&]<class T>(T) { write_numbers<T>(memory.data(), count, rank.job.rank()); });
  reduce(same);
  found.bits = rank.ops.checksum(memory.data(), found.bytes, 0);
  return found;
}

std::string reproducible_heading(Form form) {
  if (form == Form::kJson) return {};
  if (form == Form::kCsv) return csv_heading(reproducible_fields({}));
  return fmt::format("{:>11} {:>10} {:<20}   {:>11} {:>15} {:>6} {:>16} {:>6}", "bytes", "count",
                     "algorithm", "plain us", "reproducible us", "times", "bits", "wrong");
}

std::string to_text(const Reproducible& r, Form form) {
  if (form == Form::kJson) return json_line(reproducible_fields(r));
  if (form == Form::kCsv) return csv_line(reproducible_fields(r));
  return fmt::format("{:>11} {:>10} {:<20} {}{:>11.1f} {:>15.1f} {:>6.2f} {:016x} {:>6}", r.bytes,
                     r.count, r.choice.algorithm, marks(r.choice, r.wait), r.plain_us,
                     r.reproducible_us, r.times(), r.bits, wrong_cell(r.wrong, form));
}

}  // namespace lockstep::tools::bench
