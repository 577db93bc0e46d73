// SPDX-License-Identifier: MIT
// Outcome of one process's part of work that all processes do at the same time, such as mapping
// memory or predicting the times of algorithms. It is a text, or an error that is sent to the
// others in place of the text. If one process fails, all throw; nobody waits for a process that
// left. One thread.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"

namespace lockstep::collectives {

class Outcome {
 public:
  // Runs `work`. `what` precedes the text of an error that is not lockstep's own. Rethrows kTimeout
  // and kPeerLost at once: this process has already waited for the missing one, and so do the
  // others.
  Outcome(const std::string& what, const std::function<std::string()>& work);
  const std::string& told() const { return told_; }  // sent in the exchange
  // Returns the texts of all processes, by process, from what each sent. Throws this process's own
  // error unchanged, else the first error of another process, with its code and "process N: "
  // before its text.
  std::vector<std::string> texts(std::vector<std::string> told) const;

 private:
  std::string told_;
  std::exception_ptr failed_;
};

// Runs `work` and one exchange. Returns the texts of all processes, by process. If one process
// fails, all throw. Collective.
std::vector<std::string> all_or_none(Bootstrap& bootstrap, const std::string& what,
                                     const std::function<std::string()>& work);

}  // namespace lockstep::collectives
