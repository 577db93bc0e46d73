// SPDX-License-Identifier: MIT
// A session gives programs the parameter server strategy.
#include "strategies/session/parameter_server_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace parameter_server_job_test {

using namespace std::chrono_literals;
using strategies::StrategyOptions;
using testing::HasSubstr;

strategies::SessionOptions quiet() {
  return {.log = engine::Log("", engine::Log::Level::kError)};
}

TEST(ParameterServerJob, TrainsWithWhatItCanObey) {
  strategies::Session session(0, nullptr, quiet());
  const StrategyOptions given{.step = {.dtype = engine::DType::kFloat64},
                              .replicas = 2,
                              .device = "reference",
                              .threads = 1,
                              .bind = false,
                              .deadline = 20s,
                              .measured = true};
  auto strategy = strategies::parameter_server(
      session, {.servers = 2, .updates = {.synchronous = true}}, given);
  Outcome outcome;
  EXPECT_EQ(train(strategy, {}, &outcome).steps, 20);
  EXPECT_LT(difference(strategy.weights(), train_mirrored({}, replicas(2)).weights[0]), 1e-12);
}

TEST(ParameterServerJob, RefusesWhatOnlyAnAllReduceCouldObey) {
  strategies::Session session(0, nullptr, quiet());
  const auto refused = [&](const StrategyOptions& options) -> std::string {
    try {
      strategies::parameter_server(session, {}, options);
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused({.step = {.algorithm = "ring"}}), HasSubstr("leave out algorithm"));
  EXPECT_THAT(refused({.step = {.update = strategies::Update::kFused}}),
              HasSubstr("leave out update"));
  EXPECT_THAT(refused({.step = {.bucket_bytes = 4096}}), HasSubstr("leave out bucket_bytes"));
  EXPECT_THAT(refused({.step = {.overlap = false}}), HasSubstr("leave out overlap"));
  EXPECT_THAT(refused({.shares = {1}}), HasSubstr("leave out shares"));
  EXPECT_THAT(refused({.memory_limit = 1}), HasSubstr("leave out memory_limit"));
  strategies::StrategyOptions both{.step = {.update = strategies::Update::kSeparate}};
  both.shares = {1};
  EXPECT_THAT(refused(both), HasSubstr("leave out update, shares"));
}

}  // namespace parameter_server_job_test
}  // namespace lockstep::test
