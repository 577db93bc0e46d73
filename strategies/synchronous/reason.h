// SPDX-License-Identifier: MIT
// The reason for a choice, as a value with one formatter. Pure; thread-safe.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep::strategies {

class Reason {
 public:
  Reason() = default;
  // Takes the end of a sentence that begins with the choice: "there is one replica".
  Reason(std::string why) { add({}, std::move(why)); }
  Reason(const char* why) : Reason(std::string(why)) {}
  static Reason asked();  // an explicit request
  // Adds the reason for one of several choices.
  void add(std::string choice, const Reason& why);

  bool empty() const { return parts_.empty(); }
  // Returns e.g. "it was asked for" or "ring: it was asked for; direct: ...". `then`: for a later
  // run that reads it in a checkpoint ("it was asked for when the checkpoint was written").
  std::string text(bool then = false) const;

 private:
  struct Part {
    std::string choice, why;
    bool asked = false;
  };
  void add(std::string choice, std::string why);
  std::vector<Part> parts_;
};

}  // namespace lockstep::strategies
