// SPDX-License-Identifier: MIT
// A line of a benchmark's results, for people and for programs. Plain values; pure functions.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "tools/bench/measure.h"

namespace lockstep::tools::bench {

// What is timed beside lockstep, with columns of its own.
enum class Rival { kNone, kMpi, kNccl };

struct Row {
  Task task;
  std::size_t bytes = 0, count = 0;  // of one rank
  Choice choice;
  Measured measured;
  double barrier_ns = 0;     // of this run; 0: nothing was measured
  std::string devices = {};  // "cuda:0,cuda:1", of each rank that is on a device
  double algbw() const { return double(bytes) / measured.in_place.median / 1e3; }  // GB/s, in place
  double busbw() const { return algbw() * task.bus_factor(); }
  std::optional<double> roofline_percent() const;
  std::optional<double> rival_us() const;
  std::optional<double> ratio() const;  // the rival's time over ours, in place
};

enum class Form { kTable, kCsv, kJson };

// What was wrong: a null, an empty cell or "-" where nothing was compared.
nlohmann::json wrong_json(const Wrong& wrong);
std::string wrong_cell(const Wrong& wrong, Form form);

// In a table, between an algorithm and what follows: whether the planner would choose it.
const char* mark(const Choice& choice);
constexpr const char* kMarked = "# *: what the planner chooses";

// Column names; empty in JSON. Ranks on devices have columns of their own, and NCCL as the rival.
std::string heading(Form form, Rival rival);
std::string to_text(const Row& row, Form form, Rival rival);

}  // namespace lockstep::tools::bench
