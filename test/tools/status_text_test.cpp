// SPDX-License-Identifier: MIT
// Tests the output of `lockstep serve --status` for a task's answer.
#include "tools/status_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace lockstep::test {
namespace status_text_test {

using nlohmann::json;
using testing::HasSubstr;
using tools::status_text;

json job() {
  std::vector<int> histogram(17);
  histogram[0] = 30, histogram[1] = 9, histogram[16] = 1;
  return {
      {"generation", 2},
      {"version", 40},
      {"ready", true},
      {"shards", {{{"name", "w"}}, {{"name", "b"}}}},
      {"synchronous", false},
      {"waiting_calls", 1},
      {"waiting_parts", 0},
      {"pushes",
       {{"applied", 80}, {"kept", 0}, {"late", 1}, {"too_stale", 2}, {"repeated", 3}, {"lost", 4}}},
      {"pulls", 41},
      {"bytes_pushed", 5 << 20},
      {"bytes_pulled", 2048},
      {"rows_pushed", 7},
      {"rows_pulled", 8},
      {"staleness", {{"steps", 40}, {"mean", 0.625}, {"most", 16}, {"histogram", histogram}}},
      {"workers",
       {{{"last", 80}, {"lost", 4}, {"seconds_since", 0.25}},
        {{"last", (std::uint64_t(2) << 40) + 5}, {"lost", 0}, {"seconds_since", 1.5}},
        {{"last", 0}, {"lost", 0}, {"seconds_since", nullptr}}}}};
}

json server(const json& of_job) {
  return {{"containers",
           {{{"name", ""}, {"variables", 1}, {"bytes", 4}},
            {{"name", "digits"}, {"variables", 0}, {"bytes", 3 << 19}, {"job", of_job}}}}};
}

TEST(StatusText, SaysAllOfAServer) {
  EXPECT_EQ(
      status_text("h:1", server(job()).dump()),
      "h:1: a server with 2 containers\n"
      "  container \"\": 4 bytes, 1 variable of clients\n"
      "  container \"digits\": 1.5 MiB, 0 variables of clients\n"
      "    job: asynchronous, version 40, generation 2, 2 shards\n"
      "    pushes: 80 applied, 0 held for other workers, 1 late, 2 too stale, 3 repeated, 4 lost; "
      "41 pulls\n"
      "    moved: 5 MiB pushed, 2 KiB pulled; 7 rows pushed, 8 pulled\n"
      "    per step of a worker: 128 KiB pushed (with 0.2 rows of tables)\n"
      "    staleness: mean 0.62, most 16 (steps of 0: 30, 1: 9, 16 and more: 1)\n"
      "    waiting: 1 call\n"
      "    worker 0: push 80, 0.2 s ago, 4 lost\n"
      "    worker 1: push 5 of start 2, 1.5 s ago\n"
      "    worker 2: no push yet\n");
}

TEST(StatusText, SaysThatAJobWaitsForItsValues) {
  json waiting = job();
  waiting["ready"] = false;
  waiting["staleness"]["steps"] = 0;
  waiting["waiting_calls"] = 0;
  const std::string text = status_text("h:1", server(waiting).dump());
  EXPECT_THAT(text, HasSubstr("2 shards, waits for its start values\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("staleness")));
  EXPECT_THAT(text, testing::Not(HasSubstr("waiting:")));
}

TEST(StatusText, ShowsAnotherTaskAsItIs) {
  EXPECT_EQ(status_text("h:1", R"({"role":"chief"})"), "h:1:\n{\n  \"role\": \"chief\"\n}\n");
}

TEST(StatusText, RefusesWhatIsNoStatus) {
  json without = server(job());
  without["containers"][1]["job"].erase("pushes");
  json negative = server(job());
  negative["containers"][0]["bytes"] = "many";
  for (const std::string& text : {std::string("nonsense"), std::string(), without.dump(),
                                  negative.dump(), std::string(R"({"containers":7})")}) {
    try {
      status_text("h:1", text);
      ADD_FAILURE() << text;
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kCorrupt);
      EXPECT_THAT(error.what(), HasSubstr("h:1 answered"));
    }
  }
}

}  // namespace status_text_test
}  // namespace lockstep::test
