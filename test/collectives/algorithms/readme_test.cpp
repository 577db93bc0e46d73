// SPDX-License-Identifier: MIT
// The examples of collectives/README.md match the code: the printed plan, and the worked example of
// a new algorithm.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/steps.h"
#include "collectives/check/verifier.h"
#include "engine/base/error.h"
#include "test/collectives/job.h"

namespace lockstep::collectives {
namespace readme_example {

Plan naive_all_reduce(const Request& request) {
  Plan plan = empty_plan(request, "naive", 1);
  const std::string refusal = direct_refusal(request.host);
  engine::require(refusal.empty(), "{}: naive {}", request.name, refusal);
  engine::require(!request.update && !request.squares, "{}: no place for an update", request.name);
  std::vector<int> others = all_ranks(request);
  if (others.size() == 1 || request.subject.empty()) return plan;
  const auto values = everywhere(others, request.space, request.subject.begin);
  Step sum = reduce(request.subject.size(), values, values);
  finish_sum(sum, request);  // a mean is scaled
  others.erase(others.begin());
  plan.lanes[0][0] = {await(others, 1), sum, arrive()};
  for (const int me : others) plan.lanes[std::size_t(me)][0] = {arrive(), await({0}, 1)};
  return plan;
}

}  // namespace readme_example
}  // namespace lockstep::collectives

namespace lockstep::test {
namespace readme_test {

using collectives::Goal;

Request request(std::vector<int> host, std::size_t length) {
  Request request;
  request.name = "bucket 0";
  request.subject = {0, length};
  request.host = std::move(host);
  return request;
}

// Returns a file of the sources; empty if the test was started by hand from another folder.
std::string source(const std::string& path) {
  const char* root = std::getenv("LOCKSTEP_SOURCE");
  std::ifstream file(std::string(root ? root : ".") + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string readme() {
  return source("collectives/README.md");
}

TEST(Readme, ShowsTheExampleThatIsTestedHere) {
  const std::string text = readme();
  if (text.empty()) GTEST_SKIP() << "no collectives/README.md; set LOCKSTEP_SOURCE";
  const std::size_t begin = text.find("\nPlan naive_all_reduce(");
  ASSERT_NE(begin, std::string::npos);
  const std::string shown = text.substr(begin, text.find("\n}\n", begin) + 3 - begin);
  EXPECT_NE(source("test/collectives/algorithms/readme_test.cpp").find(shown), std::string::npos)
      << shown;
}

TEST(Readme, ShowsThePlanThatIsPrinted) {
  const std::string text = readme();
  if (text.empty()) GTEST_SKIP() << "no collectives/README.md; set LOCKSTEP_SOURCE";
  const std::string plan =
      print(collectives::readme_example::naive_all_reduce(request({0, 0}, 5000)));
  EXPECT_NE(text.find(plan), std::string::npos) << plan;
}

TEST(Readme, ShowsWhatTheVerifierSaysOfABrokenExample) {
  const std::string text = readme();
  if (text.empty()) GTEST_SKIP() << "no collectives/README.md; set LOCKSTEP_SOURCE";
  Plan plan = collectives::readme_example::naive_all_reduce(request({0, 0, 0}, 5000));
  for (auto& lanes : plan.lanes) lanes[0].pop_back();
  const std::string why = verify(plan, Goal::kSumEverywhere);
  EXPECT_FALSE(why.empty());
  EXPECT_NE(text.find(why), std::string::npos) << why;
}

TEST(Readme, HasAnExampleThatIsAnAlgorithm) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const std::size_t length : {std::size_t(0), std::size_t(1), std::size_t(5000)}) {
      const Plan plan =
          collectives::readme_example::naive_all_reduce(request(hosts("one", ranks), length));
      EXPECT_EQ(verify(plan, Goal::kSumEverywhere), "");
      Job job({{plan, {}, false}}, length);
      for (int rank = 0; rank < ranks; ++rank)
        std::fill_n(job.values<float>(rank), length, float(rank + 1));
      job.execute({0});
      for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t i = 0; i < length; ++i)
          ASSERT_EQ(job.values<float>(rank)[i], float(ranks * (ranks + 1) / 2));
    }
}

}  // namespace readme_test
}  // namespace lockstep::test
