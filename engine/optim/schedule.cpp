// SPDX-License-Identifier: MIT
#include "engine/optim/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"

namespace lockstep::engine::optim {
namespace {

// Returns all of `text` as a number; throws an error that names the option.
template <class T>
T number_of(std::string_view option, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size(),
          "schedule: {}={} is not a number", option, text);
  return value;
}

void set_option(Schedule& schedule, std::string_view option) {
  const std::size_t equals = option.find('=');
  const std::string_view name = option.substr(0, equals);
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view{} : option.substr(equals + 1);
  if (name == "warmup") {
    schedule.warm_up = number_of<std::int64_t>(name, value);
    require(schedule.warm_up >= 0, "schedule: warmup={} is negative; it is a number of steps",
            schedule.warm_up);
  } else if (name == "last" && schedule.kind == Schedule::Kind::kCosine) {
    schedule.last = number_of<double>(name, value);
    require(schedule.last >= 0 && schedule.last <= 1,
            "schedule: last={} is not a part of the rate; 0 <= last <= 1", schedule.last);
  } else {
    fail(Code::kInvalid, "schedule: unknown option '{}'; {}", name,
         schedule.kind == Schedule::Kind::kCosine ? "cosine has warmup=STEPS and last=PART"
                                                  : "constant has warmup=STEPS");
  }
}

}  // namespace

// During warm-up, the rate of step s is (s + 1) / warm_up of the base: the first step has an
// effect, and the last one has the full rate. After it, `part` grows from 0 to 1 at the end of the
// run.
double Schedule::rate(double base, std::int64_t step, std::int64_t steps) const {
  if (step < warm_up) return base * double(step + 1) / double(warm_up);
  if (kind == Kind::kConstant) return base;
  const std::int64_t span = steps - warm_up;
  const double part = span > 0 ? std::clamp(double(step - warm_up) / double(span), 0.0, 1.0) : 0.0;
  const double cosine = 0.5 * (1 + std::cos(std::numbers::pi * part));
  return base * (last + (1 - last) * cosine);
}

std::string Schedule::describe() const {
  std::string text = kind == Kind::kConstant ? "constant" : fmt::format("cosine to {}", last);
  if (warm_up > 0) text += fmt::format(", {} steps of warm-up", warm_up);
  return text;
}

Schedule schedule(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view kind = text.substr(0, colon);
  Schedule result;
  if (kind == "constant") {
    result.kind = Schedule::Kind::kConstant;
  } else {
    require(kind == "cosine", "unknown schedule '{}'{}", brief(kind),
            known_names(kind, {"constant", "cosine"}));
    result.kind = Schedule::Kind::kCosine;
  }
  if (colon == std::string_view::npos) return result;
  std::string_view rest = text.substr(colon + 1);
  while (true) {
    const std::size_t comma = rest.find(',');
    set_option(result, rest.substr(0, comma));
    if (comma == std::string_view::npos) return result;
    rest = rest.substr(comma + 1);
  }
}

}  // namespace lockstep::engine::optim
