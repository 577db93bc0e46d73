// SPDX-License-Identifier: MIT
#include "collectives/json_reading.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace lockstep::collectives::json_reading {

using engine::require;
using nlohmann::json;

namespace {

// Of a key that stands twice in an object one value would be passed over in silence. Follows the
// parser: the keys of each object that is open, by depth.
class RepeatedKey {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) open_[depth + 1].clear();
    if (event == json::parse_event_t::key && !open_[depth].insert(parsed).second && found.empty())
      found = parsed.get<std::string>();
    return true;
  }
  std::string found;

 private:
  std::map<int, std::set<json>> open_;
};

}  // namespace

json parse(const std::string& text, const std::string& what) {
  json parsed;
  RepeatedKey repeated;
  try {
    parsed = json::parse(text, std::ref(repeated));
  } catch (const json::parse_error& error) {
    // `byte` counts from 1, and is one more than there are where the text ends too early.
    const std::string before = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    const auto lines = std::count(before.begin(), before.end(), '\n');
    const std::size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
    engine::fail(engine::Code::kInvalid,
                 "{} is no JSON object in {{ }}: it goes wrong at line {}, column {}", what,
                 lines + 1, before.size() - line_begin + 1);
  }
  require(parsed.is_object(), "{} is no JSON object in {{ }}", what);
  require(repeated.found.empty(), "{}: \"{}\" stands twice in one object", what, repeated.found);
  return parsed;
}

namespace {

const json& at(const json& object, const char* key) {
  const auto found = object.find(key);
  require(found != object.end(), "\"{}\" is missing in {}", key, object.dump().substr(0, 80));
  return *found;
}

}  // namespace

std::string text(const json& object, const char* key) {
  const json& value = at(object, key);
  require(value.is_string(), "\"{}\" must be a text in quotes, not {}", key, value.dump());
  return value.get<std::string>();
}

std::string text(const json& object, const char* key, const std::string& otherwise) {
  return object.contains(key) ? text(object, key) : otherwise;
}

json list(const json& object, const char* key, bool needed) {
  if (!needed && !object.contains(key)) return json::array();
  const json& value = at(object, key);
  require(value.is_array(), "\"{}\" must be a list in [ ], not {}", key, value.dump());
  return value;
}

int number(const json& object, const char* key, int least) {
  const json& value = at(object, key);
  require(value.is_number_integer() && value >= least && value <= 1'000'000'000,
          "\"{}\" must be a whole number from {} on, not {}", key, least, value.dump());
  return value.get<int>();
}

int number(const json& object, const char* key, int least, int otherwise) {
  return object.contains(key) ? number(object, key, least) : otherwise;
}

namespace {

constexpr double kMostSeconds = 1e6, kMostRate = 1e18;  // bytes a second

}  // namespace

double quantity(const json& object, const char* key, double otherwise, bool positive) {
  if (!object.contains(key)) return otherwise;
  const json& value = object.at(key);
  const double read = value.is_number() ? value.get<double>() : -1;
  require(std::isfinite(read) && read >= 0 && (read > 0 || !positive),
          "\"{}\" must be a number {}, not {}", key, positive ? "above 0" : "from 0 on",
          value.dump());
  const std::string_view name = key;
  require(!name.ends_with("bytes_per_second") || read == 0 || (read >= 1 && read <= kMostRate),
          "\"{}\" must be from 1 to {:g}, not {}", key, kMostRate, value.dump());
  require(
      !(name.ends_with("seconds") || name.ends_with("seconds_per_byte")) || read <= kMostSeconds,
      "\"{}\" must be at most {:g}, not {}", key, kMostSeconds, value.dump());
  return read;
}

bool truth(const json& object, const char* key, bool otherwise) {
  if (!object.contains(key)) return otherwise;
  require(object[key].is_boolean(), "\"{}\" is true or false, not {}", key, object[key].dump());
  return object[key].get<bool>();
}

void only(const json& object, std::string_view what, std::initializer_list<std::string_view> keys) {
  require(object.is_object(), "{} must be an object, not {}", what, object.dump());
  for (const auto& [key, value] : object.items()) {
    require(std::find(keys.begin(), keys.end(), key) != keys.end(),
            "{} knows no \"{}\"; it knows: {}", what, key, fmt::join(keys, ", "));
  }
}

}  // namespace lockstep::collectives::json_reading
