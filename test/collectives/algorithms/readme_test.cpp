// SPDX-License-Identifier: MIT
// The examples of collectives/README.md match the code: the printed plan, and the worked example of
// a new algorithm.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "collectives/algorithms/steps.h"
#include "collectives/check/verifier.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace readme_test {

using collectives::arrive;
using collectives::await;
using collectives::Goal;
using collectives::Lane;

// Returns a plan in which rank 0 adds everything and stores the sum into all. The others wait.
Plan naive_all_reduce(const Request& request) {
  Plan plan = empty_plan(request, "naive", 1);
  const std::vector<int> all = all_ranks(request);
  for (const int me : all) {
    Lane& lane = plan.lanes[std::size_t(me)][0];
    lane = {arrive(), await(all, 1)};
    if (me == 0 && !request.subject.empty())
      lane.push_back(
          collectives::reduce(request.subject.size(),
                              collectives::everywhere(all, request.space, request.subject.begin),
                              collectives::everywhere(all, request.space, request.subject.begin)));
    lane.push_back(arrive());
    lane.push_back(await({0}, 2));
  }
  return plan;
}

Request request(std::vector<int> host, std::size_t length) {
  Request request;
  request.name = "bucket 0";
  request.subject = {0, length};
  request.host = std::move(host);
  return request;
}

// Returns the README; empty if the test was started by hand from another folder.
std::string readme() {
  const char* root = std::getenv("LOCKSTEP_SOURCE");
  std::ifstream file(std::string(root ? root : ".") + "/collectives/README.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Readme, ShowsThePlanThatIsPrinted) {
  const std::string text = readme();
  if (text.empty()) GTEST_SKIP() << "no collectives/README.md; set LOCKSTEP_SOURCE";
  const std::string plan = print(ring_all_reduce(request({0, 0, 1}, 1000)));
  EXPECT_NE(text.find(plan), std::string::npos) << plan;
}

TEST(Readme, ShowsWhatTheVerifierSaysOfABrokenExample) {
  const std::string text = readme();
  if (text.empty()) GTEST_SKIP() << "no collectives/README.md; set LOCKSTEP_SOURCE";
  Plan plan = naive_all_reduce(request({0, 0, 0}, 5000));
  for (auto& lanes : plan.lanes) lanes[0].pop_back();
  const std::string why = verify(plan, Goal::kSumEverywhere);
  EXPECT_FALSE(why.empty());
  EXPECT_NE(text.find(why), std::string::npos) << why;
}

TEST(Readme, HasAnExampleThatIsAnAlgorithm) {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (const std::size_t length : {std::size_t(0), std::size_t(1), std::size_t(5000)}) {
      const Plan plan = naive_all_reduce(request(hosts("one", ranks), length));
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
