// SPDX-License-Identifier: MIT
// Functions that read JSON written by other processes or people. Every error is an Error(kInvalid)
// that names its location. Pure and thread-safe.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::collectives::json_reading {

// Parses a JSON object. Errors report the line and column of a syntax error, a duplicate key, or
// the key of a number beyond the range of double. Nesting deeper than 32 levels is an error, too.
nlohmann::json parse(const std::string& text, const std::string& what);

// Returns the value as JSON for an error that quotes it.
std::string quoted(const nlohmann::json& value);

// Returns a whole number from `least` to a billion. `otherwise`: the result if the key is missing.
int number(const nlohmann::json& object, const char* key, int least);
int number(const nlohmann::json& object, const char* key, int least, int otherwise);

// Returns a text, or `otherwise` if the key is missing.
std::string text(const nlohmann::json& object, const char* key);
std::string text(const nlohmann::json& object, const char* key, const std::string& otherwise);

// Returns a list. It is empty if the key is missing and `needed` is false.
nlohmann::json list(const nlohmann::json& object, const char* key, bool needed);

// Returns a number of at least 0 (above 0 if `positive`), or `otherwise` if the key is missing. The
// key's last words set its limits. Seconds are at most a million. Bytes per second are at least 1,
// or 0 if not `positive`. Other numbers would add up to times that nobody could wait for.
double quantity(const nlohmann::json& object, const char* key, double otherwise, bool positive);

// Returns true or false, or `otherwise` if the key is missing.
bool truth(const nlohmann::json& object, const char* key, bool otherwise);

// Throws Error(kInvalid) on unknown keys. A misspelled key would silently mean the default.
void only(const nlohmann::json& object, std::string_view what,
          std::initializer_list<std::string_view> keys);

// Runs `work` and puts `what` in front of its errors. Turns exceptions of json (a missing key,
// another type) into Error(kInvalid).
template <class Work>
auto reading(const std::string& what, const Work& work) {
  try {
    return work();
  } catch (const nlohmann::json::exception& error) {
    engine::fail(engine::Code::kInvalid, "{}: {}", what, engine::reason_of(error));
  } catch (const engine::Error& error) {
    engine::fail(error.code(), "{}: {}", what, error.what());
  }
}

}  // namespace lockstep::collectives::json_reading
