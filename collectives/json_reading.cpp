// SPDX-License-Identifier: MIT
#include "collectives/json_reading.h"

#include <algorithm>
#include <cmath>

namespace lockstep::collectives::json_reading {

using engine::require;
using nlohmann::json;

json parse(const std::string& text, const std::string& what) {
  json parsed = json::parse(text, nullptr, false);
  require(!parsed.is_discarded() && parsed.is_object(), "{}: that is no JSON object", what);
  return parsed;
}

int number(const json& object, const char* key, int least) {
  const json& value = object.at(key);
  require(value.is_number_integer() && value >= least && value <= 1'000'000'000,
          "\"{}\" must be a whole number from {} on, not {}", key, least, value.dump());
  return value.get<int>();
}

int number(const json& object, const char* key, int least, int otherwise) {
  return object.contains(key) ? number(object, key, least) : otherwise;
}

double quantity(const json& object, const char* key, double otherwise, bool positive) {
  if (!object.contains(key)) return otherwise;
  const json& value = object.at(key);
  const double read = value.is_number() ? value.get<double>() : -1;
  require(std::isfinite(read) && read >= 0 && (read > 0 || !positive),
          "\"{}\" must be a number {}, not {}", key, positive ? "above 0" : "from 0 on",
          value.dump());
  return read;
}

void only(const json& object, std::string_view what, std::initializer_list<std::string_view> keys) {
  require(object.is_object(), "{} must be an object, not {}", what, object.dump());
  for (const auto& [key, value] : object.items()) {
    require(std::find(keys.begin(), keys.end(), key) != keys.end(),
            "{} knows no \"{}\"; it knows: {}", what, key, fmt::join(keys, ", "));
  }
}

}  // namespace lockstep::collectives::json_reading
