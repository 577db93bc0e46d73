// SPDX-License-Identifier: MIT
#include "tools/bench/row.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/bench/fields.h"

namespace lockstep::tools::bench {
namespace {

std::string cell(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

nlohmann::json number_or_null(std::optional<double> value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string table(const Row& row, bool mpi) {
  const Measured& m = row.measured;
  std::string text = fmt::format(
      "{:>11} {:>10} {:<20} {} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.2f} {:>8.2f} {:>6} "
      "{:>9} "
      "{:>6}",
      row.bytes, row.count, row.choice.algorithm, mark(row.choice), m.in_place.median,
      m.in_place.least, m.in_place.p99, m.out_of_place.median, row.algbw(), row.busbw(),
      cell(row.roofline_percent(), 0), cell(row.choice.predicted_us, 1),
      wrong_cell(m.wrong, Form::kTable));
  if (mpi) text += fmt::format(" {:>10} {:>6}", cell(row.mpi_us(), 1), cell(row.ratio(), 2));
  return text + "  " + row.choice.reason;
}

Fields row_fields(const Row& row, bool mpi) {
  const Measured& m = row.measured;
  const auto seen = [](double number) { return number > 0 ? nlohmann::json(number) : nullptr; };
  Fields all{{"bytes", row.bytes},
             {"count", row.count},
             {"algorithm", row.choice.algorithm},
             {"reason", row.choice.reason},
             {"in_place_us", m.in_place.median},
             {"out_of_place_us", m.out_of_place.median},
             {"min_us", m.in_place.least},
             {"p99_us", m.in_place.p99},
             {"out_of_place_min_us", m.out_of_place.least},
             {"out_of_place_p99_us", m.out_of_place.p99},
             {"algbw_gb_s", row.algbw()},
             {"busbw_gb_s", row.busbw()},
             {"roofline_percent", number_or_null(row.roofline_percent())},
             {"predicted_us", number_or_null(row.choice.predicted_us)},
             {"wrong", wrong_json(m.wrong)}};
  if (mpi) {
    all.emplace_back("mpi_us", number_or_null(row.mpi_us()));
    all.emplace_back("ratio", number_or_null(row.ratio()));
    all.emplace_back("mpi_wrong", wrong_json(m.mpi_wrong));
    all.emplace_back("mpi_processors_us", m.mpi ? seen(m.mpi->processors) : nullptr);
  }
  all.emplace_back("chosen", row.choice.chosen);
  all.emplace_back("iterations", m.iterations);
  all.emplace_back("barrier_ns", seen(row.barrier_ns));
  all.emplace_back("processors_us", seen(m.in_place.processors));
  add_task(all, row.task);
  return all;
}

}  // namespace

std::optional<double> Row::roofline_percent() const {
  if (!measured.roofline_us) return std::nullopt;
  return 100 * *measured.roofline_us / measured.in_place.median;
}

std::optional<double> Row::mpi_us() const {
  if (!measured.mpi) return std::nullopt;
  return measured.mpi->median;
}

std::optional<double> Row::ratio() const {
  if (!measured.mpi) return std::nullopt;
  return measured.mpi->median / measured.in_place.median;
}

nlohmann::json wrong_json(const Wrong& wrong) {
  return wrong ? nlohmann::json(*wrong) : nlohmann::json();
}

std::string wrong_cell(const Wrong& wrong, Form form) {
  return wrong ? fmt::format("{}", *wrong) : form == Form::kTable ? "-" : "";
}

const char* mark(const Choice& choice) {
  return choice.chosen ? "*" : " ";
}

std::string heading(Form form, bool mpi) {
  if (form == Form::kJson) return {};
  if (form == Form::kCsv) return csv_heading(row_fields({}, mpi));
  return fmt::format(
      "{:>11} {:>10} {:<20}   {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6} {:>9} {:>6}{}  {}",
      "bytes", "count", "algorithm", "us", "min", "p99", "out us", "algbw", "busbw", "roof %",
      "predicted", "wrong", mpi ? fmt::format(" {:>10} {:>6}", "MPI us", "ratio") : "", "reason");
}

std::string to_text(const Row& row, Form form, bool mpi) {
  return form == Form::kTable ? table(row, mpi)
         : form == Form::kCsv ? csv_line(row_fields(row, mpi))
                              : json_line(row_fields(row, mpi));
}

}  // namespace lockstep::tools::bench
