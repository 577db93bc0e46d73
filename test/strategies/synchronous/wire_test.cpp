// SPDX-License-Identifier: MIT
// Training with gradients that travel between hosts as bfloat16 keeps mirrors equal and losses
// nearly the same. The choice is recorded and obeyed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace wire_test {

using engine::DType;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

namespace fs = std::filesystem;
namespace optim = engine::optim;

// A schedule that does not depend on the number of steps.
const optim::Schedule kConstant{.kind = optim::Schedule::Kind::kConstant};

strategies::SynchronousOptions options(const std::string& wire, const std::string& update = "auto",
                                       const std::string& algorithm = "auto", int count = 1) {
  auto options = replicas(count);
  if (!wire.empty()) options.step.wire = engine::dtype_of(wire);
  options.step.update = strategies::update_of(update);
  options.step.algorithm = algorithm;
  return options;
}

Job float32(std::int64_t steps = 20) {
  Job job;
  job.dtype = DType::kFloat32;
  job.steps = steps;
  job.optimizer = optim::sgd({.rate = 0.02, .momentum = 0.9, .schedule = kConstant});
  return job;
}

struct Way {
  std::vector<int> host;
  int count;
  std::string algorithm, update;
};

// Losses stay within 1 % in each of 20 steps, which reduce the loss to a third.
TEST(Wire, KeepsMirrorsEqualAndLossesNear) {
  for (const Way& way : std::vector<Way>{{{0, 1}, 1, "ring", "fused"},
                                         {{0, 1}, 1, "ring", "separate"},
                                         {{0, 1, 2}, 1, "ring", "fused"},
                                         {{0, 1, 2}, 1, "halving_doubling", "separate"},
                                         {{0, 1}, 2, "hierarchical", "fused"},
                                         {{0, 1}, 2, "hierarchical", "separate"},
                                         {{0, 0, 1}, 1, "leader_hierarchical", "fused"},
                                         {{0, 1}, 2, "hierarchical_halving", "separate"},
                                         {{0, 1}, 2, "auto", "auto"}})
    for (const bool clips : {false, true}) {
      if (clips && way.update == "fused") continue;  // no such step between hosts
      SCOPED_TRACE(fmt::format("{} {} {}", way.algorithm, way.update, clips));
      Job job = float32();
      job.optimizer = optim::sgd({.rate = 0.02, .momentum = 0.9, .clip_norm = clips ? 0.2 : 0.0});
      const auto run = [&](const std::string& wire) {
        return train_collective(job, options(wire, way.update, way.algorithm, way.count), way.host);
      };
      const Outcome exact = run(""), rounded = run("bfloat16");
      for (const auto& weights : rounded.weights) EXPECT_EQ(weights, rounded.weights[0]);
      EXPECT_NE(rounded.weights[0], exact.weights[0]);
      ASSERT_EQ(rounded.losses.size(), exact.losses.size());
      for (std::size_t i = 0; i < exact.losses.size(); ++i)
        EXPECT_NEAR(rounded.losses[i], exact.losses[i], 0.01 * exact.losses[i]) << "step " << i;
    }
}

TEST(Wire, ChangesNothingOnOneHostAndSaysSo) {
  const Job job = float32(5);
  EXPECT_EQ(train_mirrored(job, options("bfloat16", "auto", "auto", 3)).weights,
            train_mirrored(job, options("", "auto", "auto", 3)).weights);
  auto asked = options("bfloat16", "auto", "auto", 2);
  asked.step.dtype = DType::kFloat32;
  strategies::Mirrored strategy(asked);
  strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
  EXPECT_THAT(strategy.explain(), HasSubstr("wire: bfloat16 was asked for, and changes nothing"));
}

// On one host a wire type changes no bits of a resumed run either, and explain() says who asked.
TEST(Wire, OnOneHostIsNoOtherPlanThanTheCheckpoints) {
  const Job job = float32(5);
  std::string record, said;
  const auto explained = [&](const std::string& wire) {
    auto these = options(wire, "auto", "auto", 2);
    these.step.dtype = DType::kFloat32;
    these.log = engine::Log("", engine::Log::Level::kWarning,
                            [&](auto, std::string_view line) { said += line; });
    strategies::Mirrored strategy(these);
    engine::OpenOptions opening;
    opening.plan = record;
    strategy.open(small_graph(job), job.optimizer.rule, opening);
    record = strategy.plan();
    return strategy.explain();
  };
  explained("");
  said.clear();
  const std::string same = "so that the bits are the same";
  EXPECT_THAT(explained("bfloat16"),
              AllOf(HasSubstr("bfloat16 was asked for, and changes nothing"), HasSubstr(same)));
  EXPECT_THAT(explained(""),
              AllOf(HasSubstr("bfloat16 was asked for when the checkpoint was written, and changes "
                              "nothing"),
                    HasSubstr(same)));
  EXPECT_THAT(said, Not(HasSubstr("bits may differ")));
}

TEST(Wire, OfOtherGradientsThanFloat32IsRefusedInOneLine) {
  for (const DType dtype : {DType::kFloat64, DType::kBFloat16}) {
    Job job;
    job.dtype = dtype;
    try {
      train_mirrored(job, options("bfloat16"));
      ADD_FAILURE() << "was taken";
    } catch (const engine::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("wire bfloat16 is for gradients of float32"));
      EXPECT_THAT(error.what(), HasSubstr(std::string(engine::name(dtype))));
    }
  }
  EXPECT_THROW(train_mirrored(float32(), options("int8")), engine::Error);
}

class RecordedWire : public testing::Test {
 protected:
  RecordedWire() {
    std::string name = (fs::temp_directory_path() / "lockstep-wire-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~RecordedWire() override { fs::remove_all(folder_); }

  Outcome train(std::int64_t steps, const std::string& wire, const std::string& into) {
    Job job = float32(steps);
    job.checkpoints = folder_ + "/" + into;
    auto these = options(wire);
    said_.clear();
    these.log = engine::Log("", engine::Log::Level::kWarning, [this](auto, std::string_view line) {
      std::scoped_lock lock(mutex_);
      said_ += line;
    });
    return train_collective(job, these, {0, 1});
  }
  std::string folder_, said_;
  std::mutex mutex_;
};

TEST_F(RecordedWire, IsObeyedByARunThatGoesOn) {
  const Outcome whole = train(14, "bfloat16", "whole");
  train(5, "bfloat16", "parts");
  const auto storage = engine::posix_storage();
  engine::Checkpoints checkpoints(*storage, folder_ + "/parts", 1, engine::Log());
  EXPECT_THAT(checkpoints.read_state(5).plan, HasSubstr("\"wire\":\"bfloat16\""));
  EXPECT_EQ(train(14, "", "parts").weights, whole.weights);
  EXPECT_THAT(said_, Not(HasSubstr("bits may differ")));
  train(5, "bfloat16", "other");
  EXPECT_NE(train(14, "float32", "other").weights, whole.weights);
  EXPECT_THAT(said_, HasSubstr("wire float32 was asked for, the checkpoint was written with "
                               "bfloat16: bits may differ"));
}

}  // namespace wire_test
}  // namespace lockstep::test
