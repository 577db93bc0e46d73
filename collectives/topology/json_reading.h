// SPDX-License-Identifier: MIT
// Reading JSON that other processes or people wrote: whatever is wrong with it is an
// Error(kInvalid) that says where. Pure; any thread.
#pragma once
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::collectives::json_reading {

// An error says at which line and column it stops to be JSON, which key stands twice, which number
// is larger than a double, or that it is nested deeper than 32 levels.
nlohmann::json parse(const std::string& text, const std::string& what);

// Returns the value as JSON for an error that quotes it.
std::string quoted(const nlohmann::json& value);

// A whole number from `least` to a billion.
int number(const nlohmann::json& object, const char* key, int least);
int number(const nlohmann::json& object, const char* key, int least, int otherwise);

// A text; `otherwise` where the key is not there.
std::string text(const nlohmann::json& object, const char* key);
std::string text(const nlohmann::json& object, const char* key, const std::string& otherwise);

// A list; an empty one where the key is not there and `needed` is false.
nlohmann::json list(const nlohmann::json& object, const char* key, bool needed);

// A number from 0 on (above 0 where `positive`); `otherwise` where the key is not there. By the
// key's last words: seconds are at most a million; bytes a second are 1 at least, or 0 where not
// `positive`. Other numbers would add up to no time that anybody could wait for.
double quantity(const nlohmann::json& object, const char* key, double otherwise, bool positive);

// True or false; `otherwise` where the key is not there.
bool truth(const nlohmann::json& object, const char* key, bool otherwise);

// Refuses keys that nobody reads: a misspelt one would be a default, silently.
void only(const nlohmann::json& object, std::string_view what,
          std::initializer_list<std::string_view> keys);

// What json throws on a missing key or another type, as one of our errors.
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
