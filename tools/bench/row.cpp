// SPDX-License-Identifier: MIT
#include "tools/bench/row.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "collectives/mpi/mpi_bootstrap.h"
#include "engine/base/quantity.h"
#include "tools/bench/fields.h"

namespace lockstep::tools::bench {
namespace {

std::optional<double> median(const std::optional<Times>& times) {
  if (!times) return std::nullopt;
  return times->median;
}

const char* title(Rival rival) {
  return rival == Rival::kNccl ? "NCCL us" : "MPI us";
}

// Returns whether the prediction is off by more than a factor of two.
bool is_off(const Row& row) {
  const double us = row.measured.in_place.median;
  const double predicted = row.choice.predicted_us.value_or(us);
  return us > 2 * predicted || predicted > 2 * us;
}

// Returns how many rows have a prediction, and how many of these are off.
std::pair<std::size_t, std::size_t> predictions(const std::vector<Row>& rows) {
  std::size_t predicted = 0, off = 0;
  for (const Row& row : rows) predicted += row.choice.predicted_us.has_value(), off += is_off(row);
  return {predicted, off};
}

// Returns the mark of a row that needs a second look.
char doubt(const Row& row) {
  constexpr double kMostRoofline = 120;
  const bool above = row.devices.empty() && row.roofline_percent().value_or(0) > kMostRoofline;
  return above ? '^' : is_off(row) ? '?' : ' ';
}

std::string table(const Row& row, Rival rival) {
  const Measured& m = row.measured;
  std::string text = fmt::format(
      "{:>11} {:>10} {:<20} {}{}{:>9} {:>10} {:>10} {:>10} {:>8.2f} {:>8.2f} {:>6} {:>9} {:>6}",
      row.bytes, row.count, row.choice.algorithm, marks(row.choice, m.in_place.wait), doubt(row),
      us_cell(m.in_place.median), us_cell(m.in_place.least), us_cell(m.in_place.p99),
      us_cell(median(m.out_of_place)), row.algbw(), row.busbw(), cell(row.roofline_percent(), 0),
      us_cell(row.choice.predicted_us), wrong_cell(m.wrong, Form::kTable));
  if (rival != Rival::kNone)
    text += fmt::format(" {:>10} {:>6}", us_cell(row.rival_us()), cell(row.ratio(), 2));
  if (rival == Rival::kMpi)
    text += fmt::format(" {:>10} {:>10}", us_cell(median(m.copied)), cell(row.copied_ratio(), 2));
  return text;
}

Fields row_fields(const Row& row, Rival rival) {
  const Measured& m = row.measured;
  const bool mpi = rival == Rival::kMpi;
  const std::string its = mpi ? "mpi" : "nccl";
  const auto apart = [&m](double Times::*number) {
    return m.out_of_place ? nlohmann::json(*m.out_of_place.*number) : nlohmann::json();
  };
  const auto seen = [](double number) { return number > 0 ? nlohmann::json(number) : nullptr; };
  Fields all{{"bytes", row.bytes},
             {"count", row.count},
             {"algorithm", row.choice.algorithm},
             {"in_place_us", m.in_place.median},
             {"out_of_place_us", apart(&Times::median)},
             {"min_us", m.in_place.least},
             {"p99_us", m.in_place.p99},
             {"out_of_place_min_us", apart(&Times::least)},
             {"out_of_place_p99_us", apart(&Times::p99)},
             {"algbw_gb_s", row.algbw()},
             {"busbw_gb_s", row.busbw()},
             {"roofline_us", number_or_null(m.roofline_us)},
             {"roofline_percent", number_or_null(row.roofline_percent())},
             {"predicted_us", number_or_null(row.choice.predicted_us)},
             {"wrong", wrong_json(m.wrong)}};
  if (rival != Rival::kNone) {
    all.emplace_back(its + "_us", number_or_null(row.rival_us()));
    if (mpi) {
      all.emplace_back("mpi_min_us", m.rival ? nlohmann::json(m.rival->least) : nullptr);
      all.emplace_back("mpi_p99_us", m.rival ? nlohmann::json(m.rival->p99) : nullptr);
    }
    all.emplace_back("ratio", number_or_null(row.ratio()));
    if (mpi) {
      all.emplace_back("copied_us", number_or_null(median(m.copied)));
      all.emplace_back("copied_ratio", number_or_null(row.copied_ratio()));
    }
    all.emplace_back(its + "_wrong", wrong_json(m.rival_wrong));
  }
  if (mpi) all.emplace_back("mpi", collectives::mpi::version());
  if (mpi) all.emplace_back("mpi_processors_us", m.rival ? seen(m.rival->processors) : nullptr);
  if (rival == Rival::kNccl) {
    all.emplace_back("devices", row.devices);
    all.emplace_back("copy_gb_s", m.copy_gb_s);
  }
  all.emplace_back("chosen", row.choice.chosen);
  all.emplace_back("iterations", m.iterations);
  all.emplace_back("barrier_ns", seen(row.barrier_ns));
  all.emplace_back("processors_us", seen(m.in_place.processors));
  all.emplace_back("disturbed", m.in_place.wait.disturbed());
  add_task(all, row.task);
  all.emplace_back("reason", row.choice.reason);  // last, since it has commas
  return all;
}

}  // namespace

std::string field_help() {
  return R"(Columns of the table, and their fields in JSON and CSV:
  bytes, count     size and elements of one rank's input; of an all-gather of its result
  us, min, p99     in_place_us, min_us, p99_us: median, least and 99th percentile in place
  out us           out_of_place_us, out_of_place_min_us, out_of_place_p99_us
  algbw, busbw     algbw_gb_s: bytes over us; busbw_gb_s: that times the part of the bytes that
                   must travel, 2 (n - 1) / n in an all-reduce of n ranks
  roof %           roofline_percent: roofline_us over us: the time to read all inputs and write
                   all results once, or between hosts to send the bytes at the measured rate
  predicted        predicted_us: null without a prediction
  wrong            elements with a wrong result; null with --check none
  MPI us, ratio    mpi_us, mpi_min_us, mpi_p99_us, mpi_wrong; MPI's time over lockstep's
  copied us        copied_us, copied_ratio (MPI/copied): with buffers of each process, as MPI's
  NCCL us, ratio   nccl_us, nccl_wrong, devices, copy_gb_s; NCCL's time over lockstep's
  * ! ? ^          chosen by the planner; disturbed: a rank waited for a processor; more than
                   twice off the prediction; roof % above 120
Fields of JSON and CSV alone:
  reason           why the planner chooses this algorithm, or why the chosen one is faster
  barrier_ns       a barrier of ranks 0 and 1; null if they are on different hosts
  processors_us    processor time of all ranks (of MPI: mpi_processors_us); null below 64 KiB and
                   for threads
  iterations, version, host, processor, mpi, ranks, hosts, threads, collective, dtype, op
Fields of --regret:
  algorithm, best  the choice, and the fastest of all
  choice_us, best_us, regret
                   medians of both, timed again in turn; choice_us over best_us
  us               the first times of all algorithms; in CSV columns such as ring_us
Fields of --overlap, whose bytes are those of all 8 buckets together:
  compute_us, alone_us, together_us
                   medians of the backward pass, of the sums, of both together
  hidden_percent   part of the sums' time that runs beside the backward pass; null on one host
Fields of --reproducible:
  plain_us, reproducible_us, times, bits
                   medians of a Communicator's sums, their ratio, and a checksum of the result
)";
}

std::optional<double> Row::roofline_percent() const {
  if (!measured.roofline_us) return std::nullopt;
  return 100 * *measured.roofline_us / measured.in_place.median;
}

std::optional<double> Row::rival_us() const {
  return median(measured.rival);
}

std::optional<double> Row::ratio() const {
  if (!measured.rival) return std::nullopt;
  return measured.rival->median / measured.in_place.median;
}

std::optional<double> Row::copied_ratio() const {
  if (!measured.rival || !measured.copied) return std::nullopt;
  return measured.rival->median / measured.copied->median;
}

nlohmann::json wrong_json(const Wrong& wrong) {
  return wrong ? nlohmann::json(*wrong) : nlohmann::json();
}

std::string wrong_cell(const Wrong& wrong, Form form) {
  return wrong ? fmt::format("{}", *wrong) : form == Form::kTable ? "-" : "";
}

std::string marks(const Choice& choice, const collectives::ProcessorWait& wait) {
  return {choice.chosen ? '*' : ' ', wait.disturbed() ? '!' : ' '};
}

std::string legend(const std::vector<Row>& rows) {
  std::string found, text;
  for (const Row& row : rows) found += marks(row.choice, row.measured.in_place.wait) + doubt(row);
  const std::pair<char, const char*> meanings[] = {
      {'*', kMarked},
      {'!', kDisturbed},
      {'?', "?: more than twice off the prediction"},
      {'^', "^: roof % above 120, as if the machine had changed its speed"}};
  for (const auto& [mark, meaning] : meanings)
    if (found.find(mark) != std::string::npos)
      text += (text.empty() ? "# " : "\n# ") + std::string(meaning);
  return text;
}

std::string heading(Form form, Rival rival) {
  if (form == Form::kJson) return {};
  if (form == Form::kCsv) return csv_heading(row_fields({}, rival));
  return fmt::format(
             "{:>11} {:>10} {:<20}   {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6} {:>9} {:>6}{}",
             "bytes", "count", "algorithm", "us", "min", "p99", "out us", "algbw", "busbw",
             "roof %", "predicted", "wrong",
             rival != Rival::kNone ? fmt::format(" {:>10} {:>6}", title(rival), "ratio") : "") +
         (rival == Rival::kMpi ? fmt::format(" {:>10} {:>10}", "copied us", "MPI/copied") : "");
}

std::string to_text(const Row& row, Form form, Rival rival) {
  return form == Form::kTable ? table(row, rival)
         : form == Form::kCsv ? csv_line(row_fields(row, rival))
                              : json_line(row_fields(row, rival));
}

std::string summary(const std::vector<Row>& rows) {
  const auto [predicted, off] = predictions(rows);
  if (predicted == 0) return {};
  std::string text =
      fmt::format("# predictions within a factor of two: {} of {}", predicted - off, predicted);
  std::string reasons;
  for (const Row& row : rows)
    if (row.choice.chosen)
      reasons += fmt::format("\n# {}, {}: {}", engine::bytes_text(double(row.bytes)),
                             row.choice.algorithm, row.choice.reason);
  if (!reasons.empty()) text += "\n# why the planner chose, by predicted times:" + reasons;
  return text;
}

bool mostly_off(const std::vector<Row>& rows) {
  const auto [predicted, off] = predictions(rows);
  return 2 * off > predicted;
}

}  // namespace lockstep::tools::bench
