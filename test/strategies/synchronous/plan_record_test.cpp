// SPDX-License-Identifier: MIT
// A resumed run with requests that contradict its checkpoint's plan still gets a valid step.
// Settings that it did not request are chosen anew only if necessary.
#include "strategies/synchronous/plan_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/optim/optimizer.h"
#include "engine/reference/reference_device.h"
#include "strategies/synchronous/step_design.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace plan_record_test {

using strategies::DesignOptions;
using strategies::StepDesign;
using strategies::Update;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t kLarge = engine::kBlock * sizeof(double) * 2;  // bucket bytes for direct

class PlanRecord : public testing::Test {
 protected:
  StepDesign design(const DesignOptions& options, double clip = 0) {
    return design(options, engine::optim::sgd({.momentum = 0.9, .clip_norm = clip}).rule);
  }
  StepDesign design(const DesignOptions& options, const engine::UpdateRule& rule) {
    strategies::DesignInput input;
    input.graph = &graph_;
    input.rule = rule;
    input.host = host_;
    input.totals = 4, input.metrics_per_rank = 2, input.gather_per_rank = 1;
    return strategies::design_step(input, options);
  }
  // Plans a run whose planner chose the settings `chosen`, and returns `wanted` completed by the
  // record of that run.
  DesignOptions resumed(const DesignOptions& chosen, DesignOptions wanted) {
    DesignOptions options = chosen;
    options.asked = "auto";
    const StepDesign before = design(options);
    obeyed_ = strategies::obey_record(strategies::plan_record(before, host_, {}), host_, wanted,
                                      engine::Log("", engine::Log::Level::kError));
    return wanted;
  }
  std::vector<int> host_{0, 0};
  bool obeyed_ = false;
  std::unique_ptr<engine::Device> device_ = engine::reference_device();
  std::unique_ptr<engine::Ops> ops_ = device_->ops(engine::DType::kFloat64, {});
  const engine::Graph graph_{small_graph({}), *ops_, 1};
};

TEST_F(PlanRecord, IsObeyedWhereNothingElseIsAskedFor) {
  const DesignOptions options =
      resumed({.step = {.algorithm = "direct", .update = Update::kSeparate}}, {});
  EXPECT_TRUE(obeyed_);
  const StepDesign again = design(options);
  EXPECT_EQ(again.update, Update::kSeparate);
  EXPECT_THAT(again.algorithms, Each("direct"));
  EXPECT_EQ(again.asked, "auto");
}

// The reasons say that an earlier run asked, not this one, and do not accumulate over several runs.
TEST_F(PlanRecord, SaysThatAnotherRunAsked) {
  DesignOptions options{.step = {.algorithm = "ring", .update = Update::kSeparate}};
  for (int run = 0; run < 2; ++run) {
    const std::string record = strategies::plan_record(design(options), host_, {});
    options = {};
    EXPECT_TRUE(strategies::obey_record(record, host_, options,
                                        engine::Log("", engine::Log::Level::kError)));
    EXPECT_EQ(design(options).reason.text(), "it was asked for when the checkpoint was written");
    EXPECT_EQ(design(options).update_reason.text(),
              "it was asked for when the checkpoint was written");
  }
  DesignOptions same{.step = {.algorithm = "ring"}};
  strategies::obey_record(
      strategies::plan_record(design({.step = {.algorithm = "ring"}}), host_, {}), host_, same,
      engine::Log("", engine::Log::Level::kError));
  EXPECT_EQ(design(same).reason.text(), "it was asked for");
}

// The recorded algorithms by size do not apply to other buckets.
TEST_F(PlanRecord, OfOtherBucketsIsChosenAnew) {
  for (const Update update : {Update::kFused, Update::kSeparate}) {
    const DesignOptions options =
        resumed({.step = {.algorithm = "direct", .update = update, .bucket_bytes = kLarge}},
                {.step = {.bucket_bytes = kLarge / 2}});
    EXPECT_FALSE(obeyed_);
    EXPECT_EQ(options.step.algorithm, "auto");
    EXPECT_EQ(options.step.update, Update::kAutomatic);
    EXPECT_EQ(options.reason + options.update_reason, "");
    EXPECT_EQ(design(options).update, Update::kFused);
  }
}

TEST_F(PlanRecord, AnUpdateThatIsAskedForChoosesTheAlgorithmAnew) {
  host_ = {0, 1};
  const DesignOptions options =
      resumed({.step = {.algorithm = "halving_doubling", .update = Update::kSeparate}},
              {.step = {.update = Update::kFused}});
  EXPECT_EQ(options.step.algorithm, "auto");
  EXPECT_EQ(design(options).update, Update::kFused);
}

TEST_F(PlanRecord, AnAlgorithmThatIsAskedForChoosesTheUpdateAnew) {
  host_ = {0, 1};
  const DesignOptions options = resumed({.step = {.algorithm = "ring", .update = Update::kFused}},
                                        {.step = {.algorithm = "halving_doubling"}});
  EXPECT_EQ(design(options).update, Update::kSeparate);
}

TEST_F(PlanRecord, AnUpdateThatCannotBeInsideAnyMoreIsSeparate) {
  host_ = {0, 1};
  const DesignOptions options =
      resumed({.step = {.algorithm = "ring", .update = Update::kFused}}, {});
  EXPECT_EQ(design(options).update, Update::kFused);
  const StepDesign clipped = design(options, 1);
  EXPECT_EQ(clipped.update, Update::kSeparate);
  EXPECT_THAT(clipped.update_reason.text(), HasSubstr("clipped"));
}

// A reason is not used again if it names another optimizer.
TEST_F(PlanRecord, OfAnotherOptimizerChoosesTheUpdateAnew) {
  const engine::UpdateRule lars = engine::optim::lars().rule, sgd = engine::optim::sgd({}).rule;
  const engine::Log log("", engine::Log::Level::kError);
  const StepDesign before = design({}, lars);
  EXPECT_EQ(before.update, Update::kSeparate);
  const std::string record = strategies::plan_record(before, host_, {});
  DesignOptions same{.rule = lars}, other{.rule = sgd},
      asked{.step = {.update = Update::kSeparate}};
  asked.rule = sgd;
  EXPECT_TRUE(strategies::obey_record(record, host_, same, log));
  EXPECT_THAT(design(same, lars).update_reason.text(), HasSubstr("lars needs"));
  EXPECT_FALSE(strategies::obey_record(record, host_, other, log));
  EXPECT_EQ(design(other, sgd).update, Update::kFused);
  EXPECT_THAT(design(other, sgd).update_reason.text(), Not(HasSubstr("lars")));
  EXPECT_THAT(design(other, sgd).algorithms, Each("direct")) << "that stays";
  EXPECT_FALSE(strategies::obey_record(record, host_, asked, log));
  EXPECT_EQ(design(asked, sgd).update_reason.text(), "it was asked for");
}

// The recorded choice is the planner's, and no run requested it.
TEST_F(PlanRecord, SaysWhatWasAskedForAndWhatWasWritten) {
  const DesignOptions options = resumed({.step = {.algorithm = "direct", .update = Update::kFused}},
                                        {.step = {.kernels = engine::Kernels::kWinograd}});
  EXPECT_FALSE(obeyed_);
  const StepDesign again = design(options);
  EXPECT_EQ(again.reason.text(), "the checkpoint was written so");
  EXPECT_EQ(again.update_reason.text(), "the checkpoint was written so");
  EXPECT_EQ(again.asked, "auto");
}

TEST_F(PlanRecord, WhoseChoicesCannotBeReadIsDamage) {
  std::string record =
      strategies::plan_record(design({.step = {.algorithm = "direct"}}), host_, {});
  const std::string direct = "\"algorithm\":\"direct\"";
  ASSERT_NE(record.find(direct), std::string::npos) << record;
  record.replace(record.find(direct), direct.size(), "\"algorithm\":\"ring:..x\"");
  DesignOptions options;
  try {
    strategies::obey_record(record, host_, options, engine::Log("", engine::Log::Level::kError));
    FAIL() << "it was obeyed";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("the checkpoint's plan: 'x' is no size"));
  }
}

}  // namespace plan_record_test
}  // namespace lockstep::test
