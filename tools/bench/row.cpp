// SPDX-License-Identifier: MIT
#include "tools/bench/row.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lockstep::tools::bench {
namespace {

std::string number(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

nlohmann::json json(std::optional<double> value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string table(const Row& row, bool mpi) {
  const Measured& m = row.measured;
  std::string text = fmt::format(
      "{:>11} {:>10} {:<20} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.2f} {:>8.2f} {:>6} {:>9} "
      "{:>6}",
      row.bytes, row.count, row.choice.algorithm, m.in_place.median, m.in_place.least,
      m.in_place.p99, m.out_of_place.median, row.algbw(), row.busbw(),
      number(row.roofline_percent(), 0), number(row.choice.predicted_us, 1),
      wrong_cell(m.wrong, Form::kTable));
  if (mpi) text += fmt::format(" {:>10} {:>6}", number(row.mpi_us(), 1), number(row.ratio(), 2));
  return text + "  " + row.choice.reason;
}

std::string csv(const Row& row, bool mpi) {
  const Measured& m = row.measured;
  const auto cell = [](std::optional<double> value) {
    return value ? fmt::format("{:.4g}", *value) : std::string();
  };
  std::string text = fmt::format(
      "{},{},{},\"{}\",{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{},{},{}", row.bytes,
      row.count, row.choice.algorithm, row.choice.reason, m.in_place.median, m.out_of_place.median,
      m.in_place.least, m.in_place.p99, m.out_of_place.least, m.out_of_place.p99, row.algbw(),
      row.busbw(), cell(row.roofline_percent()), cell(row.choice.predicted_us),
      wrong_cell(m.wrong, Form::kCsv));
  if (mpi) text += fmt::format(",{},{}", cell(row.mpi_us()), cell(row.ratio()));
  return text;
}

std::string object(const Row& row, bool mpi) {
  const Measured& m = row.measured;
  nlohmann::json o{{"bytes", row.bytes},
                   {"count", row.count},
                   {"algorithm", row.choice.algorithm},
                   {"reason", row.choice.reason},
                   {"iterations", m.iterations},
                   {"in_place_us", m.in_place.median},
                   {"out_of_place_us", m.out_of_place.median},
                   {"min_us", m.in_place.least},
                   {"p99_us", m.in_place.p99},
                   {"out_of_place_min_us", m.out_of_place.least},
                   {"out_of_place_p99_us", m.out_of_place.p99},
                   {"algbw_gb_s", row.algbw()},
                   {"busbw_gb_s", row.busbw()},
                   {"roofline_percent", json(row.roofline_percent())},
                   {"predicted_us", json(row.choice.predicted_us)},
                   {"wrong", wrong_json(m.wrong)},
                   {"barrier_ns", row.barrier_ns}};
  const auto seen = [](double us) { return us > 0 ? nlohmann::json(us) : nlohmann::json(); };
  o["processors_us"] = seen(m.in_place.processors);
  if (mpi) {
    o["mpi_us"] = json(row.mpi_us()), o["ratio"] = json(row.ratio());
    o["mpi_processors_us"] = m.mpi ? seen(m.mpi->processors) : nlohmann::json();
  }
  return o.dump();
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

std::string heading(Form form, bool mpi) {
  if (form == Form::kJson) return {};
  if (form == Form::kCsv) {
    return std::string(
               "bytes,count,algorithm,reason,in_place_us,out_of_place_us,min_us,p99_us,"
               "out_of_place_min_us,out_of_place_p99_us,algbw_gb_s,busbw_gb_s,"
               "roofline_percent,predicted_us,wrong") +
           (mpi ? ",mpi_us,ratio" : "");
  }
  return fmt::format(
      "{:>11} {:>10} {:<20} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>6} {:>9} {:>6}{}  {}",
      "bytes", "count", "algorithm", "us", "min", "p99", "apart us", "algbw", "busbw", "roof %",
      "predicted", "wrong", mpi ? fmt::format(" {:>10} {:>6}", "MPI us", "ratio") : "", "reason");
}

std::string to_text(const Row& row, Form form, bool mpi) {
  return form == Form::kTable ? table(row, mpi)
         : form == Form::kCsv ? csv(row, mpi)
                              : object(row, mpi);
}

}  // namespace lockstep::tools::bench
