// SPDX-License-Identifier: MIT
// Tests the launch that the variables of a process describe.
#include "strategies/session/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/base/error.h"

namespace lockstep::test {
namespace launch_test {

using strategies::first_host;
using strategies::Launch;
using testing::HasSubstr;
using testing::StartsWith;
using Variables = std::map<std::string, std::string>;

strategies::VariableReader reader(const Variables& variables) {
  return [&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

Launch launch_of(const Variables& variables) {
  return strategies::launch(reader(variables));
}

std::string refusal(const Variables& variables) {
  try {
    strategies::require_known_launcher(reader(variables));
    return {};
  } catch (const engine::Error& error) {
    return error.what();
  }
}

const Variables kByHand{
    {"LOCKSTEP_RANK", "1"}, {"LOCKSTEP_RANKS", "4"}, {"LOCKSTEP_RENDEZVOUS", "node1:29500"}};
const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29400"}};
const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "2"},
                        {"OMPI_COMM_WORLD_SIZE", "3"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kSlurm{{"SLURM_JOB_ID", "17"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "1"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_STEP_NODELIST", "node[08-11]"}};
const Variables kTfConfig{
    {"TF_CONFIG", R"({"cluster": {"chief": ["h0:2222"], "worker": ["h1:2223", "h2:2224"]},
                     "task": {"type": "worker", "index": "1"}})"}};

// Returns both; those of `inner` count where both have a variable.
Variables with(Variables inner, const Variables& outer) {
  inner.insert(outer.begin(), outer.end());
  return inner;
}

TEST(Launches, HaveTheNumbersOfTheirLauncher) {
  const struct {
    Variables variables;
    const char* launcher;
    Launch::Meeting meeting;
    int rank, size;
    std::string rendezvous;
  } cases[] = {{{}, "", Launch::Meeting::kNone, 0, 1, ""},
               {kByHand, "LOCKSTEP_RANK", Launch::Meeting::kRendezvous, 1, 4, "node1:29500"},
               {kTorchrun, "torchrun", Launch::Meeting::kRendezvous, 3, 4, "node1:29400"},
               {kMpirun, "mpirun", Launch::Meeting::kMpi, 2, 3, ""},
               {kSlurm, "srun", Launch::Meeting::kRendezvous, 1, 2, "node08:"},
               {kTfConfig, "TF_CONFIG", Launch::Meeting::kRendezvous, 2, 3, "h0:2222"}};
  for (const auto& c : cases) {
    const Launch found = launch_of(c.variables);
    EXPECT_EQ(found.present, found.launcher != "");
    EXPECT_EQ(found.launcher, c.launcher);
    EXPECT_EQ(found.meeting, c.meeting) << c.launcher;
    EXPECT_EQ(found.rank, c.rank) << c.launcher;
    EXPECT_EQ(found.size, c.size) << c.launcher;
    EXPECT_THAT(found.rendezvous, StartsWith(c.rendezvous));
    EXPECT_FALSE(found.one_host);
    EXPECT_EQ(refusal(c.variables), "");
  }
  EXPECT_EQ(launch_of(kTfConfig).port, 2224);
  EXPECT_EQ(launch_of(kTorchrun).local_rank, 1);
  EXPECT_EQ(launch_of(kMpirun).local_size, 2);
}

// srun starts agents of torchrun, and an allocation of Slurm contains mpirun.
TEST(Launches, AreOfTheInnermostLauncher) {
  EXPECT_EQ(launch_of(with(kTorchrun, kSlurm)).launcher, "torchrun");
  EXPECT_EQ(launch_of(with(kMpirun, kSlurm)).launcher, "mpirun");
  EXPECT_EQ(launch_of(with(kSlurm, kTfConfig)).launcher, "srun");
  EXPECT_EQ(launch_of(with(kByHand, with(kTorchrun, kMpirun))).launcher, "LOCKSTEP_RANK");
  // One process of an outer launcher, in which another one starts several.
  const Variables pod{
      {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "pod0"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(launch_of(with(kMpirun, pod)).launcher, "mpirun");
  const Variables task{{"PMIX_RANK", "0"}, {"SLURM_NTASKS", "1"}};
  const Variables mpich{{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}};
  EXPECT_EQ(launch_of(with(mpich, task)).launcher, "mpiexec");
}

// Processes of one host meet at a socket of their user, whose name depends on the job.
TEST(Launches, OfOneHostNeedNoAddress) {
  Variables torchrun = kTorchrun, by_hand = kByHand, slurm = kSlurm;
  torchrun["LOCAL_WORLD_SIZE"] = "4";
  slurm["SLURM_STEP_NUM_NODES"] = "1";
  by_hand["LOCKSTEP_RENDEZVOUS"] = "localhost:29500";
  const Variables tf_config{
      {"TF_CONFIG", R"({"cluster": {"worker": ["localhost:2222", "127.0.0.1:2223"]},
                       "task": {"type": "worker", "index": 0}})"}};
  for (const Variables& variables : {torchrun, by_hand, slurm, tf_config}) {
    const Launch found = launch_of(variables);
    EXPECT_TRUE(found.one_host);
    EXPECT_THAT(found.rendezvous, StartsWith("unix:/tmp/lockstep-"));
  }
  const std::string first = launch_of(slurm).rendezvous;
  slurm["SLURM_STEP_ID"] = "1";
  EXPECT_NE(launch_of(slurm).rendezvous, first);
}

TEST(Launches, OfOneProcessAreNoJob) {
  Variables batch_script = kSlurm, interactive = kSlurm, one = kByHand;
  batch_script.erase("SLURM_STEP_NUM_TASKS");
  interactive["SLURM_STEP_NUM_TASKS"] = "1";
  one["LOCKSTEP_RANK"] = "0", one["LOCKSTEP_RANKS"] = "1";
  for (const Variables& variables :
       {batch_script, interactive, one, Variables{{"WORLD_SIZE", "4"}},
        Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
        Variables{{"TF_CONFIG", R"({"cluster": {"worker": ["h1:2222"], "ps": ["h2:2222"]},
                                   "task": {"type": "ps", "index": 0}})"}}}) {
    EXPECT_FALSE(launch_of(variables).several());
    EXPECT_EQ(refusal(variables), "");
  }
}

TEST(Launches, ThatCannotMeetOrContradictThemselvesAreRefused) {
  Variables too_large = kByHand, no_number = kByHand, no_address = kByHand;
  too_large["LOCKSTEP_RANK"] = "4";
  no_number["LOCKSTEP_RANKS"] = "4x";
  no_address.erase("LOCKSTEP_RENDEZVOUS");
  Variables no_size = kTorchrun, no_rank = kTorchrun, beyond = kTorchrun, no_port = kTorchrun,
            no_tasks = kSlurm;
  no_size["WORLD_SIZE"] = "two";
  no_rank.erase("RANK"), no_rank["TORCHELASTIC_RUN_ID"] = "none";
  beyond["RANK"] = "4";
  no_port["MASTER_PORT"] = "abc";
  no_tasks["SLURM_STEP_NUM_TASKS"] = "x";
  const std::pair<Variables, const char*> cases[] = {
      {with(kMpirun, {{"LOCKSTEP_RANK", "0"}, {"LOCKSTEP_RANKS", "1"}}), "since mpirun numbers"},
      {no_size, "RANK is '3' and WORLD_SIZE 'two': torchrun sets"},
      {no_rank, "RANK is '' and WORLD_SIZE '4'"},
      {beyond, "RANK is '4' and WORLD_SIZE '4'"},
      {no_port, "MASTER_PORT 'abc'"},
      {no_tasks, "SLURM_STEP_NUM_TASKS 'x'"},
      {too_large, "--rank (LOCKSTEP_RANK) is 4: of 4 processes the last one is 3"},
      {no_number, "LOCKSTEP_RANKS is '4x'"},
      {no_address, "LOCKSTEP_RENDEZVOUS does not say where the processes meet"},
      {{{"LOCKSTEP_RENDEZVOUS", "node1:29500"}}, "LOCKSTEP_RANK is ''"},
      {{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}, "PMI_SIZE=2: a launcher with PMI"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "4"}}, "WORLD_SIZE=4: torchrun"},
      {{{"PMIX_RANK", "0"}}, "PMIX_RANK, but not the number of processes"}};
  for (const auto& [variables, words] : cases) EXPECT_THAT(refusal(variables), HasSubstr(words));
}

TEST(Launches, FindTheFirstHostOfASlurmList) {
  const std::pair<const char*, const char*> cases[] = {
      {"node1", "node1"}, {"node[08-11,15],login", "node08"},
      {"a,b[1-2]", "a"},  {"rack[3,5-7]-gpu", "rack3-gpu"},
      {"gpu_1", "gpu_1"}, {"a[1-2]b[3-4],c", "a1b3"},
      {"n[1", ""},        {"", ""},
      {"a b", ""},        {"$(x)", ""},
      {"n[$(x)]", ""}};
  for (const auto& [list, host] : cases) EXPECT_EQ(first_host(list), host) << list;
}

}  // namespace launch_test
}  // namespace lockstep::test
