// SPDX-License-Identifier: MIT
// What came of one process's part of something that all processes of a job do at the same time,
// such as to map memory or to price algorithms: a text, or an error, of which it tells the others
// in place of the text. So all throw where one fails; who left without a word would be waited for.
// One thread.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"

namespace lockstep::collectives {

class Outcome {
 public:
  // Runs `work`. `what` stands before an error that is not lockstep's own. Throws what says that
  // somebody died or did not come in time: who has waited in vain has waited long enough, and the
  // others wait for that one too.
  Outcome(const std::string& what, const std::function<std::string()>& work);
  const std::string& told() const { return told_; }  // for the exchange
  // The texts of all, by process, from what each told. Throws this process's own error as it is,
  // else the first of another one, with that one's code and "process N: " before it.
  std::vector<std::string> texts(std::vector<std::string> told) const;

 private:
  std::string told_;
  std::exception_ptr failed_;
};

// One exchange: everybody's text, by process, or an error on all. Collective.
std::vector<std::string> all_or_none(Bootstrap& bootstrap, const std::string& what,
                                     const std::function<std::string()>& work);

}  // namespace lockstep::collectives
