// SPDX-License-Identifier: MIT
// Laws 5 and 6. A steady step allocates nothing. A stopped run ends with the same bits after a
// restart, and any strategy reads the checkpoints of any other.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/reference/reference_device.h"
#include "test/strategies/small_job.h"
#include "test/support/counted_allocations.h"

namespace lockstep::test {
namespace state_test {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "lockstep-state-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_; }
  void clear() const { fs::remove_all(path_); }

 private:
  std::string path_;
};

struct Way {
  std::string name;
  int replicas;           // per process
  std::vector<int> host;  // host of each process; empty: Mirrored
  std::string algorithm = "auto", update = "auto";
};

Outcome run(const Job& job, const Way& way) {
  auto options = replicas(way.replicas);
  options.step.algorithm = way.algorithm;
  options.step.update = strategies::update_of(way.update);
  return way.host.empty() ? train_mirrored(job, options) : train_collective(job, options, way.host);
}

Job job_with(const engine::optim::Optimizer& optimizer = engine::optim::adam({.rate = 0.003})) {
  Job job;
  job.centre = true;
  job.dropout = 0.2;
  job.optimizer = optimizer;
  return job;
}

// Trains until an error ends the run after the checkpoint of step `stop`.
void train_until(Job job, const Way& way, std::int64_t stop) {
  job.on_step = [stop](const engine::StepReport& report) {
    if (report.step == stop + 1) engine::fail(engine::Code::kAborted, "stopped by the test");
  };
  job.every = stop;
  EXPECT_THROW(run(job, way), engine::Error);
}

const std::vector<Way>& ways() {
  static const std::vector<Way> list = {{"mirrored 1", 1, {}},
                                        {"mirrored 4", 4, {}},
                                        {"mirrored separate 3", 3, {}, "auto", "separate"},
                                        {"processes 2 of 2", 2, {0, 0}},
                                        {"hosts 2 of 2", 2, {0, 1}},
                                        {"hosts 2 of 2, separate", 2, {0, 1}, "auto", "separate"},
                                        {"hosts 1 and 2", 1, {0, 1, 1}, "hierarchical"},
                                        {"by size", 1, {0, 1, 1}, "ring:..8k,hierarchical:8k.."}};
  return list;
}

// Each way runs twice, with the optimizers in rotation.
TEST(Law6, ARunThatIsStartedAgainWithTheSameReplicasEndsWithTheSameBits) {
  const engine::optim::Optimizer optimizers[] = {
      engine::optim::adam({.rate = 0.003}),
      engine::optim::adam({.rate = 0.003, .weight_decay = 0.1, .clip_norm = 0.05}),
      engine::optim::lars({.rate = 0.5, .weight_decay = 0.01, .trust = 0.02})};
  std::size_t turn = 0;
  for (const Way& way : ways()) {
    for (int twice = 0; twice < 2; ++twice) {
      const engine::optim::Optimizer& optimizer = optimizers[turn++ % 3];
      const Outcome undisturbed = run(job_with(optimizer), way);
      const Folder folder;
      Job job = job_with(optimizer);
      job.checkpoints = folder.path();
      train_until(job, way, 7);
      Job again = job_with(optimizer);
      again.checkpoints = folder.path();
      const Outcome resumed = run(again, way);
      EXPECT_EQ(resumed.history.first_step, 7) << way.name;
      EXPECT_EQ(resumed.history.steps, 20) << way.name;
      EXPECT_EQ(resumed.weights, undisturbed.weights) << way.name << ", " << optimizer.describe();
    }
  }
}

// One replica and the next way in the list read each way's checkpoint.
TEST(Law6, EveryStrategyReadsWhatOthersWroteSlotsIncluded) {
  const Outcome undisturbed = run(job_with(), ways()[0]);
  for (std::size_t w = 0; w < ways().size(); ++w) {
    const Way& writer = ways()[w];
    const Folder folder;
    Job job = job_with();
    job.checkpoints = folder.path();
    train_until(job, writer, 7);
    for (const std::size_t r : {std::size_t(0), (w + 1) % ways().size()}) {
      const Way& reader = ways()[r];
      const Folder copy;
      fs::copy(folder.path(), copy.path(), fs::copy_options::recursive);
      Job again = job_with();
      again.checkpoints = copy.path();
      const Outcome resumed = run(again, reader);
      EXPECT_EQ(resumed.history.first_step, 7);
      EXPECT_LT(difference(resumed.weights[0], undisturbed.weights[0]), 1e-10)
          << writer.name << " to " << reader.name;
    }
  }
}

TEST(Law6, BrokenSlotsThatStartAtZeroAreNoticed) {
  // Losing the optimizer's state changes the weights, so the comparison above would detect it.
  const Outcome undisturbed = run(job_with(), ways()[0]);
  const Folder folder;
  Job job = job_with();
  job.checkpoints = folder.path();
  train_until(job, ways()[0], 7);
  Job other = job_with();
  other.checkpoints = folder.path();
  other.optimizer = engine::optim::sgd({.rate = 0, .momentum = 0.9});
  // One step changes nothing, and saves momentum in place of the moments.
  other.steps = 8;
  run(other, ways()[0]);
  Job again = job_with();
  again.checkpoints = folder.path();
  EXPECT_GT(difference(run(again, ways()[0]).weights[0], undisturbed.weights[0]), 1e-6);
}

TEST(Law6, AnErrorThatMayPassIsAnsweredByTheLastCheckpoint) {
  for (const Way& way : ways()) {
    const Outcome undisturbed = run(job_with(), way);
    const Folder folder;
    Job job = job_with();
    job.checkpoints = folder.path();
    job.every = 5;
    job.retries = 1;
    std::atomic<bool> thrown{false};
    job.on_step = [&](const engine::StepReport& report) {
      if (report.step == 7 && !thrown.exchange(true)) {
        engine::fail(engine::Code::kUnavailable, "a network file system hiccuped");
      }
    };
    const Outcome outcome = run(job, way);
    EXPECT_TRUE(thrown);
    EXPECT_EQ(outcome.history.restores, 1) << way.name;
    EXPECT_EQ(outcome.history.first_step, 5) << way.name;
    EXPECT_EQ(outcome.weights, undisturbed.weights) << way.name;
  }
}

TEST(Law6, ADamagedNewestCheckpointIsReportedAndTheOneBeforeIsUsed) {
  const Outcome undisturbed = run(job_with(), ways()[1]);
  const Folder folder;
  Job job = job_with();
  job.checkpoints = folder.path();
  job.every = 6;
  job.steps = 20;
  train_until(job, ways()[1], 6);
  Job more = job_with();
  more.checkpoints = folder.path();
  more.every = 6;
  more.on_step = [](const engine::StepReport& report) {
    if (report.step == 13) engine::fail(engine::Code::kAborted, "stopped by the test");
  };
  EXPECT_THROW(run(more, ways()[1]), engine::Error);
  const fs::path shard =
      fs::path(folder.path()) / "step-0000000012" / "shard-00000-of-00004.safetensors";
  ASSERT_TRUE(fs::exists(shard));
  fs::resize_file(shard, fs::file_size(shard) - 1);
  Job again = job_with();
  again.checkpoints = folder.path();
  const Outcome resumed = run(again, ways()[1]);
  EXPECT_EQ(resumed.history.first_step, 6);
  EXPECT_EQ(resumed.weights, undisturbed.weights);
}

TEST(Law6, AFolderInWhichNothingIsWholeIsAnErrorAndNotAFreshStart) {
  const Folder folder;
  Job job = job_with();
  job.checkpoints = folder.path();
  job.steps = 2;
  run(job, ways()[0]);
  const fs::path manifest = fs::path(folder.path()) / "step-0000000002" / "manifest.json";
  ASSERT_TRUE(fs::exists(manifest));
  fs::resize_file(manifest, fs::file_size(manifest) / 2);
  try {
    run(job, ways()[0]);
    FAIL() << "it started afresh";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kCorrupt);
  }
}

TEST(Law6, AnotherModelInTheFolderIsRefusedWithTheLineThatDiffers) {
  const Folder folder;
  Job job = job_with();
  job.checkpoints = folder.path();
  job.steps = 2;
  run(job, ways()[0]);
  job.centre = false;
  try {
    run(job, ways()[0]);
    FAIL() << "it was accepted";
  } catch (const engine::Error& error) {
    EXPECT_NE(std::string(error.what()).find("another model"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("centre"), std::string::npos) << error.what();
  }
}

// Represents another processor by the reference device, and records its last kernels' options.
class OtherProcessor : public engine::Device {
 public:
  explicit OtherProcessor(std::string instructions) : instructions_(std::move(instructions)) {}
  engine::DeviceId id() const override { return device_->id(); }
  std::string description() const override { return device_->description(); }
  std::string instructions() const override { return instructions_; }
  std::string choices() const override { return chosen; }
  void adopt_choices(const std::string& choices) override { chosen = choices; }
  engine::DType default_dtype() const override { return device_->default_dtype(); }
  bool supports(engine::DType dtype) const override { return device_->supports(dtype); }
  engine::Buffer allocate(std::size_t bytes) override { return device_->allocate(bytes); }
  std::unique_ptr<engine::Stream> stream() override { return device_->stream(); }
  std::unique_ptr<engine::Ops> ops(engine::DType dtype, engine::OpsOptions options) override {
    last = options;
    return device_->ops(dtype, options);
  }
  engine::OpsOptions last;
  std::string chosen;

 private:
  std::unique_ptr<engine::Device> device_ = engine::reference_device();
  std::string instructions_;
};

// Opens a run, which stops once it has its plan.
struct Planned {
  int threads = 1;
  std::string instructions = "AVX2";
  std::optional<engine::Kernels> kernels = {};
  int replicas = 2;
  std::string chosen = {};                            // the device's choices of kernels
  std::optional<std::string> last_instructions = {};  // of the last replica, if different
  std::optional<std::string> last_chosen = {};
  // The results of `open`. `said` has the log lines about the checkpoint.
  std::string record = {}, explain = {}, said = {};
  engine::Kernels used = {};

  Planned& open(const std::string& checkpoint) {
    OtherProcessor device(instructions);
    device.chosen = chosen;
    strategies::SynchronousOptions options;
    options.devices.assign(std::size_t(replicas), &device);
    OtherProcessor last(last_instructions.value_or(instructions));
    last.chosen = last_chosen.value_or(chosen);
    options.devices.back() = &last;
    options.threads = threads;
    options.step.kernels = kernels;
    options.bind = false;
    options.log = engine::Log("", engine::Log::Level::kInfo, [this](auto, std::string_view line) {
      if (line.find("checkpoint") != line.npos) (said += line) += '\n';
    });
    strategies::Mirrored strategy(options);
    const Job job;
    engine::OpenOptions opening;
    opening.plan = checkpoint;
    strategy.open(small_graph(job), job.optimizer.rule, opening);
    record = strategy.plan();
    explain = strategy.explain();
    used = device.last.kernels;
    chosen = (replicas == 1 ? last : device).chosen;
    last_chosen = last.chosen;
    return *this;
  }
};

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t times = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++times;
  return times;
}

std::string without(const std::string& record, const std::vector<std::string>& keys) {
  auto plan = nlohmann::json::parse(record);
  for (const std::string& key : keys) EXPECT_EQ(plan.erase(key), 1u) << key;
  return plan.dump();
}

constexpr const char* kSameBits = "so that the bits are the same";

TEST(Record, AnotherArithmeticIsSaidInOneLineAndThePlanIsUsedAllTheSame) {
  const std::string record = Planned{.threads = 2}.open("").record;
  const std::string end = ": the last bits of sums may differ\n";
  struct Case {
    Planned run;
    std::string differ;
  };
  for (Case c :
       {Case{{.threads = 1}, "2 threads a replica, this run has 1 thread a replica"},
        Case{{.threads = 2, .instructions = "SSE4"}, "the instructions AVX2, this run has SSE4"},
        Case{{.threads = 3, .instructions = "SSE4"},
             "2 threads a replica and the instructions AVX2, this run has 3 threads a "
             "replica and SSE4"},
        Case{{.threads = 2, .last_instructions = "SSE4"},
             "the instructions AVX2, this run has AVX2 and SSE4"}}) {
    c.run.open(record);
    EXPECT_NE(c.run.said.find("the checkpoint was written with " + c.differ + end),
              std::string::npos)
        << c.run.said;
    EXPECT_EQ(count(c.run.said, "\n"), 1u) << c.run.said;
    EXPECT_NE(c.run.explain.find("the plan is the checkpoint's"), std::string::npos);
    EXPECT_EQ(c.run.explain.find(kSameBits), std::string::npos) << c.run.explain;
    // The saved checkpoint describes the run's own arithmetic.
    EXPECT_EQ(Planned(c.run).open(c.run.record).said, c.run.said);
  }
}

TEST(Record, ChoicesOfKernelsAreMadeAgainByARunOnTheSameKindOfDeviceAlone) {
  const std::string record = Planned{.chosen = "a = 1\n"}.open("").record;
  EXPECT_EQ(Planned{}.open(record).chosen, "a = 1\n");
  EXPECT_EQ(Planned{.replicas = 1}.open(record).chosen, "a = 1\n");
  EXPECT_EQ(Planned{.instructions = "SSE4"}.open(record).chosen, "");
  EXPECT_EQ(Planned{.chosen = "a = 2\n"}.open(Planned{}.open("").record).chosen, "a = 2\n");
  // Each of two kinds of devices finds the choices of its kind, wherever the devices are now.
  const std::string two =
      Planned{.chosen = "a = 3\n", .last_instructions = "SSE4", .last_chosen = "a = 4\n"}
          .open("")
          .record;
  EXPECT_EQ(Planned{}.open(two).chosen, "a = 3\n");
  EXPECT_EQ(Planned{.instructions = "SSE4"}.open(two).chosen, "a = 4\n");
  EXPECT_EQ(Planned{.last_instructions = "SSE4"}.open(two).last_chosen, "a = 4\n");
}

TEST(Record, TheSameArithmeticIsNoNews) {
  const std::string record = Planned{.threads = 2}.open("").record;
  const Planned run = Planned{.threads = 2}.open(record);
  EXPECT_EQ(run.said, "");
  EXPECT_NE(run.explain.find(kSameBits), std::string::npos) << run.explain;
  // If the bits differ anyway, only the other reason is reported.
  const Planned other = Planned{.threads = 1, .replicas = 3}.open(record);
  EXPECT_NE(other.said.find("the checkpoint was written by 2 replicas on 1 host, this run has 3 "
                            "replicas on 1 host: planned afresh"),
            std::string::npos)
      << other.said;
  EXPECT_EQ(count(other.said, "\n"), 1u) << other.said;
}

TEST(Record, OfSeveralProcessesTheChiefSpeaks) {
  const Folder folder;
  const Way way{"processes 2 of 2", 2, {0, 0}};
  Job job = job_with();
  job.checkpoints = folder.path();
  train_until(job, way, 7);
  auto options = replicas(2);
  options.threads = 2;
  std::string said;
  options.log = engine::Log("", engine::Log::Level::kWarning,
                            [&](auto, std::string_view line) { said += line; });
  const Outcome resumed = train_collective(job, options, way.host);
  EXPECT_EQ(resumed.history.first_step, 7);
  EXPECT_EQ(count(said, "1 thread a replica, this run has 2 threads a replica"), 1u) << said;
}

TEST(Record, ItsKernelsAreUsedWhereNothingWasAskedForAndOnlyThere) {
  using engine::Kernels;
  EXPECT_EQ(Planned{}.open("").used, Kernels::kAuto);
  for (const Kernels before : {Kernels::kAuto, Kernels::kDirect}) {
    const std::string record = Planned{.kernels = before}.open("").record;
    const Kernels other = before == Kernels::kAuto ? Kernels::kDirect : Kernels::kAuto;
    for (const std::optional<Kernels>& asked : {std::optional<Kernels>(), std::optional(before)}) {
      const Planned run = Planned{.kernels = asked}.open(record);
      EXPECT_EQ(run.used, before);
      EXPECT_EQ(run.record, record);
      EXPECT_EQ(run.said, "");
      EXPECT_NE(run.explain.find(kSameBits), std::string::npos) << run.explain;
    }
    const Planned run = Planned{.kernels = other}.open(record);
    EXPECT_EQ(run.used, other);
    EXPECT_NE(run.said.find(fmt::format("kernels {} were asked for, the checkpoint was written "
                                        "with {}: bits may differ",
                                        engine::name(other), engine::name(before))),
              std::string::npos)
        << run.said;
    EXPECT_EQ(run.explain.find(kSameBits), std::string::npos) << run.explain;
    EXPECT_EQ((Planned{.replicas = 3}.open(record).used), Kernels::kAuto);
  }
}

TEST(Record, WithoutOneOfItsFieldsIsDamage) {
  const std::string record = Planned{}.open("").record;
  for (const char* field : {"algorithm", "asked", "update", "kernels", "dtype", "wire", "rule",
                            "bucket_ends", "host_of_rank", "threads", "instructions"}) {
    try {
      Planned{}.open(without(record, {field}));
      ADD_FAILURE() << field;
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kCorrupt) << field;
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  }
}

TEST(Stop, AVoteEndsAllReplicasAfterTheSameStepAndSaves) {
  for (const Way& way : ways()) {
    const Folder folder;
    std::atomic<int> interrupt{0};
    Job job = job_with();
    job.checkpoints = folder.path();
    job.interrupt = &interrupt;
    job.on_step = [&](const engine::StepReport& report) {
      if (report.step == 6) interrupt = 15;
    };
    const Outcome stopped = run(job, way);
    EXPECT_EQ(stopped.history.interrupted, 15) << way.name;
    EXPECT_LT(stopped.history.steps, 20) << way.name;
    EXPECT_GE(stopped.history.steps, 8) << way.name;
    Job again = job_with();
    again.checkpoints = folder.path();
    const Outcome resumed = run(again, way);
    EXPECT_EQ(resumed.history.first_step, stopped.history.steps);
    EXPECT_EQ(resumed.weights, run(job_with(), way).weights) << way.name;
  }
}

TEST(Stop, AnEvaluationEndsInItsMidstOnAllReplicasAndItsStepIsSaved) {
  for (const Way& way : ways()) {
    const Folder folder;
    std::atomic<int> interrupt{0};
    const Interrupting test(interrupt);
    Job job = job_with();
    job.checkpoints = folder.path();
    job.every = 1000;  // not the step of the evaluation
    job.interrupt = &interrupt;
    job.last_hears_alone = true;
    job.test = &test;
    const Outcome stopped = run(job, way);
    EXPECT_EQ(stopped.history.interrupted, 15) << way.name;
    EXPECT_EQ(stopped.history.steps, 4) << way.name << ": an epoch";
    EXPECT_FALSE(stopped.history.test.has_value()) << way.name;
    EXPECT_LT(test.read(), 500) << way.name;
    Job again = job_with();
    again.checkpoints = folder.path();
    const Outcome resumed = run(again, way);
    EXPECT_EQ(resumed.history.first_step, 4) << way.name;
    EXPECT_EQ(resumed.weights, run(job_with(), way).weights) << way.name;
  }
}

TEST(Law5, TheSteadyStepAllocatesNothingRecordedOrNot) {
  for (const Way& way : {ways()[0], ways()[1], ways()[2], ways()[3]})
    for (const bool recorded : {false, true}) {
      Job job;
      job.steps = 60;
      job.dropout = 0.2;
      job.profile_steps = recorded ? 50 : 0;  // from step 10 on
      std::int64_t counted = -1, since = -1;
      job.on_step = [&](const engine::StepReport& report) {
        // The two steps counted are in one epoch, and every batch size has occurred before.
        if (report.step % 4 == 0 && report.step >= 40 && since < 0) {
          count_allocations();
          since = report.step;
        }
        if (since >= 0 && report.step == since + 2) counted = counted_allocations();
      };
      run(job, way);
      EXPECT_EQ(counted, 0) << way.name << (recorded ? ", recorded" : "");
    }
}

}  // namespace state_test
}  // namespace lockstep::test
