// SPDX-License-Identifier: MIT
#include "collectives/topology/json_reading.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace lockstep::collectives::json_reading {

using engine::brief;
using engine::require;
using nlohmann::json;

namespace {

constexpr int kDeepest = 32;  // limits the recursion over values

// Checks depth and keys during parsing. The parser would silently drop one value of a duplicate
// key.
class Watch {
 public:
  explicit Watch(const std::string& what) : what_(what) {}
  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    require(depth <= kDeepest, "{}: objects and lists are nested deeper than {} levels", what_,
            kDeepest);
    if (event == json::parse_event_t::object_start) open_[depth + 1].clear();
    if (event != json::parse_event_t::key) return true;
    key = parsed.get<std::string>();
    require(open_[depth].insert(key).second, "{}: \"{}\" stands twice in one object", what_,
            brief(key));
    return true;
  }
  std::string key;  // the last one

 private:
  const std::string& what_;
  std::map<int, std::set<std::string>> open_;  // keys of open objects, by depth
};

}  // namespace

json parse(const std::string& text, const std::string& what) {
  json parsed;
  Watch watch(what);
  try {
    parsed = json::parse(text, std::ref(watch));
  } catch (const json::parse_error& error) {
    // `byte` counts from 1. If the text ends too early, it is one past the last byte.
    const std::string before = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    const auto lines = std::count(before.begin(), before.end(), '\n');
    const std::size_t line_begin = before.rfind('\n') + 1;  // 0 if there is none
    engine::fail(engine::Code::kInvalid,
                 "{} is no JSON object in {{ }}: it goes wrong at line {}, column {}", what,
                 lines + 1, before.size() - line_begin + 1);
  } catch (const json::out_of_range&) {
    engine::fail(engine::Code::kInvalid, "{}: a number of \"{}\" is beyond 1.8e308, the largest",
                 what, brief(watch.key));
  }
  require(parsed.is_object(), "{} is no JSON object in {{ }}", what);
  return parsed;
}

std::string quoted(const json& value) {
  return brief(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

namespace {

const json& at(const json& object, const char* key) {
  const auto found = object.find(key);
  require(found != object.end(), "\"{}\" is missing in {}", key, brief(quoted(object), 80));
  return *found;
}

}  // namespace

std::string text(const json& object, const char* key) {
  const json& value = at(object, key);
  require(value.is_string(), "\"{}\" must be a text in quotes, not {}", key, quoted(value));
  return value.get<std::string>();
}

std::string text(const json& object, const char* key, const std::string& otherwise) {
  return object.contains(key) ? text(object, key) : otherwise;
}

json list(const json& object, const char* key, bool needed) {
  if (!needed && !object.contains(key)) return json::array();
  const json& value = at(object, key);
  require(value.is_array(), "\"{}\" must be a list in [ ], not {}", key, quoted(value));
  return value;
}

int number(const json& object, const char* key, int least) {
  const json& value = at(object, key);
  require(value.is_number_integer() && value >= least && value <= 1'000'000'000,
          "\"{}\" must be a whole number from {} on, not {}", key, least, quoted(value));
  return value.get<int>();
}

int number(const json& object, const char* key, int least, int otherwise) {
  return object.contains(key) ? number(object, key, least) : otherwise;
}

namespace {

constexpr double kMostSeconds = 1e6, kMostRate = 1e18;  // bytes per second

}  // namespace

double quantity(const json& object, const char* key, double otherwise, bool positive) {
  if (!object.contains(key)) return otherwise;
  const json& value = object.at(key);
  const double read = value.is_number() ? value.get<double>() : -1;
  require(std::isfinite(read) && read >= 0 && (read > 0 || !positive),
          "\"{}\" must be a number {}, not {}", key, positive ? "above 0" : "from 0 on",
          quoted(value));
  const std::string_view name = key;
  require(!name.ends_with("bytes_per_second") || read == 0 || (read >= 1 && read <= kMostRate),
          "\"{}\" must be from 1 to {:g}, not {}", key, kMostRate, quoted(value));
  require(
      !(name.ends_with("seconds") || name.ends_with("seconds_per_byte")) || read <= kMostSeconds,
      "\"{}\" must be at most {:g}, not {}", key, kMostSeconds, quoted(value));
  return read;
}

bool truth(const json& object, const char* key, bool otherwise) {
  if (!object.contains(key)) return otherwise;
  require(object[key].is_boolean(), "\"{}\" is true or false, not {}", key, quoted(object[key]));
  return object[key].get<bool>();
}

void only(const json& object, std::string_view what, std::initializer_list<std::string_view> keys) {
  require(object.is_object(), "{} must be an object, not {}", what, quoted(object));
  for (const auto& [key, value] : object.items()) {
    require(std::find(keys.begin(), keys.end(), key) != keys.end(),
            "{} knows no \"{}\"; it knows: {}", what, brief(key), fmt::join(keys, ", "));
  }
}

}  // namespace lockstep::collectives::json_reading
