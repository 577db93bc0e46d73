// SPDX-License-Identifier: MIT
// lockstep render: prints manifests for Kubernetes that start a job. Sources: the API reference of
// batch/v1 Job, and MPIJob v2beta1 of the MPI operator.
//
// Form job, without MPI: an Indexed Job, whose index is the rank, and a headless service by which
// the pods find rank 0. With servers, TF_CONFIG numbers the tasks of two such jobs. Pods that end
// with 75 (start again) or 143 (SIGTERM) are started again, and so are those that Kubernetes
// evicts; 64 and 65 (wrong flags, bad files) fail the job. Form mpijob: an MPIJob, in which mpirun
// starts the ranks; the operator decides about restarts. No secret is printed: the pods refer to
// one, and a comment has the command that makes it.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"
#include "models/registry.h"
#include "tools/bounds.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/leaving.h"
#include "tools/standard_streams.h"
#include "tools/yaml.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPort = 29500;
constexpr std::size_t kMostName = 40;  // pods and services add to it
constexpr const char* kIndex = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

struct RenderFlags {
  int workers = 1, servers = 0, gpus = 0;
  bool evaluator = false, tensorboard = false;
  std::string form = "job", name = "lockstep", image = "lockstep:latest";
  std::string tensorboard_image = "tensorflow/tensorflow:latest", volume;
  std::vector<std::string> flags;  // of lockstep train
};

// Returns the value of a flag of `train`; empty if it is not given.
std::string value_of(const std::vector<std::string>& flags, const std::string& flag) {
  std::string value;
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == flag && i + 1 < flags.size()) value = flags[i + 1];
    if (flags[i].starts_with(flag + "=")) value = flags[i].substr(flag.size() + 1);
  }
  return value;
}

void require_flags_of_train(const std::vector<std::string>& flags) {
  CLI::App train;
  train.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const Command command = add_train(train);
  train.allow_extras();
  try {
    train.parse(std::vector<std::string>(flags.rbegin(), flags.rend()));
  } catch (const CLI::CallForHelp&) {
    throw engine::Error(engine::Code::kInvalid, "--help is no flag of a job: leave it out");
  } catch (const CLI::ParseError& error) {
    throw engine::Error(
        engine::Code::kInvalid,
        fmt::format("after --: {}; lockstep train --help lists the flags", error.what()));
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : train.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  for (const std::string& other : train.remaining()) {
    const std::string hint = engine::did_you_mean(other, known);
    engine::fail(
        engine::Code::kInvalid,
        "after --: lockstep train has no flag '{}'{} lockstep train --help lists the flags",
        engine::brief(other), hint.empty() ? ";" : hint);
  }
  if (const std::string model = value_of(flags, "--model"); !model.empty()) models::build(model);
}

void require_possible(const RenderFlags& f) {
  const auto of_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  engine::require(!f.name.empty() && f.name.size() <= kMostName &&
                      std::ranges::all_of(f.name, of_name) && std::isalpha(f.name.front()) != 0 &&
                      f.name.back() != '-',
                  "--name '{}': write at most {} lower-case letters, digits and dashes between "
                  "them, the first a letter",
                  engine::brief(f.name), kMostName);
  require_flags_of_train(f.flags);
  const std::size_t colon = f.volume.find(':');
  engine::require(f.volume.empty() || (colon != std::string::npos && colon > 0 &&
                                       f.volume.substr(colon + 1).starts_with('/')),
                  "--volume '{}': write CLAIM:PATH, a claim of a volume and the folder at which "
                  "pods see it, e.g. runs:/runs",
                  engine::brief(f.volume));
  const std::string path = colon == std::string::npos ? "" : f.volume.substr(colon + 1);
  const auto shared = [&](const char* flag) {
    const std::string folder = value_of(f.flags, flag);
    return !path.empty() && (folder == path || folder.starts_with(path + "/"));
  };
  const bool saves = !value_of(f.flags, "--checkpoints").empty();
  engine::require(
      f.evaluator ? shared("--checkpoints") : !saves || f.workers == 1 || shared("--checkpoints"),
      "{} needs a folder that all pods see: give --volume CLAIM:PATH, and after -- "
      "--checkpoints with a folder below PATH",
      f.evaluator ? "--evaluator" : "--checkpoints");
  engine::require(!f.tensorboard || shared("--summary"),
                  "--tensorboard needs a folder that all pods see: give --volume CLAIM:PATH, and "
                  "after -- --summary with a folder below PATH");
  engine::require(f.form == "job" || f.servers == 0,
                  "--form mpijob is for all-reduce; jobs with --servers need --form job");
}

// Returns a document. `version` and `kind` say which API it belongs to.
Json resource(const RenderFlags& f, const char* version, const char* kind, const std::string& name,
              Json spec) {
  return {{"apiVersion", version},
          {"kind", kind},
          {"metadata", {{"name", name}, {"labels", {{"app", f.name}}}}},
          {"spec", std::move(spec)}};
}

// Returns the template of pods that selectors find by a label.
Json pod_template(const std::string& label, Json pod) {
  return {{"metadata", {{"labels", {{"app", label}}}}}, {"spec", std::move(pod)}};
}

Json headless_service(const RenderFlags& f) {
  return resource(
      f, "v1", "Service", f.name,
      {{"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", {{"app", f.name}}}});
}

Json container(const RenderFlags& f, const std::string& name, std::vector<std::string> command,
               bool trains) {
  for (std::string& word : command)  // Kubernetes replaces $(NAME) by a variable
    for (std::size_t at = word.find("$("); at != std::string::npos; at = word.find("$(", at + 3))
      word.insert(at, "$");
  Json one{{"name", name}, {"image", f.image}, {"command", std::move(command)}};
  if (trains && f.gpus > 0) one["resources"] = {{"limits", {{"nvidia.com/gpu", f.gpus}}}};
  if (!f.volume.empty())
    one["volumeMounts"] =
        Json::array({{{"name", "volume"}, {"mountPath", f.volume.substr(f.volume.find(':') + 1)}}});
  return one;
}

// Returns a pod's specification around a container, without the policy of its restarts.
Json pod(const RenderFlags& f, Json container) {
  Json spec{{"terminationGracePeriodSeconds", 60}};
  spec["containers"] = Json::array({std::move(container)});
  if (!f.volume.empty())
    spec["volumes"] = Json::array(
        {{{"name", "volume"},
          {"persistentVolumeClaim", {{"claimName", f.volume.substr(0, f.volume.find(':'))}}}}});
  return spec;
}

// Returns a job whose pods are started again unless their flags or files are wrong.
Json job(const RenderFlags& f, const std::string& name, Json pod) {
  const std::string container = pod["containers"][0]["name"];
  pod["restartPolicy"] = "Never";
  const auto exits = [&](const char* action, std::vector<int> codes) {
    return Json{{"action", action},
                {"onExitCodes",
                 {{"containerName", container}, {"operator", "In"}, {"values", std::move(codes)}}}};
  };
  Json rules = Json::array(
      {Json{{"action", "Ignore"},
            {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}},
       exits("Ignore", {kTryAgain, exit_code_of_signal(SIGTERM)}),
       exits("FailJob", {kUsage, kBadData})});
  return resource(f, "batch/v1", "Job", name,
                  {{"backoffLimit", 12},
                   {"podFailurePolicy", {{"rules", std::move(rules)}}},
                   {"template", pod_template(f.name, std::move(pod))}});
}

// Adds an index to each pod of a job, by which the others find it. The job has succeeded when the
// first pod has, which reports the result.
Json indexed(Json job, int pods, const std::string& service) {
  Json& spec = job["spec"];
  spec["completionMode"] = "Indexed";
  spec["completions"] = pods;
  spec["parallelism"] = pods;
  spec["successPolicy"] = {{"rules", Json::array({{{"succeededIndexes", "0"}}})}};
  spec["template"]["spec"]["subdomain"] = service;
  return job;
}

Json from_field(const char* name, const char* path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

bool needs_secret(const RenderFlags& f) {
  return f.form == "job" && f.servers == 0 && f.workers > 1;
}

Json secret(const RenderFlags& f) {
  return {{"name", "LOCKSTEP_SECRET"},
          {"valueFrom", {{"secretKeyRef", {{"name", f.name + "-secret"}, {"key", "secret"}}}}}};
}

std::vector<std::string> train_command(const RenderFlags& f, std::vector<std::string> more = {}) {
  std::vector<std::string> command{"lockstep", "train"};
  command.insert(command.end(), f.flags.begin(), f.flags.end());
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// Returns TF_CONFIG of a task; Kubernetes puts the pod's index in.
std::string task_config(const RenderFlags& f, const std::string& role) {
  const auto addresses = [&](const char* its, int pods) {
    Json all = Json::array();
    for (int i = 0; i < pods; ++i)
      all.push_back(fmt::format("{0}-{1}-{2}.{0}:{3}", f.name, its, i, kPort));
    return all;
  };
  const Json cluster{{"worker", addresses("worker", f.workers)},
                     {"ps", addresses("ps", f.servers)}};
  return fmt::format(R"({{"cluster":{},"task":{{"type":"{}","index":$(INDEX)}}}})", cluster.dump(),
                     role);
}

bool encrypts(const RenderFlags& f) {
  return std::ranges::any_of(f.flags,
                             [](const std::string& one) { return one.starts_with("--tls-"); });
}

std::vector<Json> indexed_jobs(const RenderFlags& f) {
  std::vector<Json> all{headless_service(f)};
  if (f.servers == 0) {
    Json worker = container(f, "worker", train_command(f), true);
    worker["env"] = Json::array({from_field("LOCKSTEP_RANK", kIndex),
                                 {{"name", "LOCKSTEP_RANKS"}, {"value", std::to_string(f.workers)}},
                                 {{"name", "LOCKSTEP_RENDEZVOUS"},
                                  {"value", fmt::format("{0}-0.{0}:{1}", f.name, kPort)}}});
    if (needs_secret(f)) worker["env"].push_back(secret(f));
    all.push_back(indexed(job(f, f.name, pod(f, std::move(worker))), f.workers, f.name));
    return all;
  }
  for (const auto& [role, pods] :
       {std::pair<std::string, int>{"worker", f.workers}, {"ps", f.servers}}) {
    std::vector<std::string> more{"--strategy", "parameter_server"};
    if (!encrypts(f)) more.emplace_back("--insecure");
    Json task = container(f, role, train_command(f, std::move(more)), role == "worker");
    task["env"] = Json::array(
        {from_field("INDEX", kIndex), {{"name", "TF_CONFIG"}, {"value", task_config(f, role)}}});
    all.push_back(indexed(job(f, f.name + "-" + role, pod(f, std::move(task))), pods, f.name));
  }
  return all;
}

Json mpi_job(const RenderFlags& f) {
  std::vector<std::string> command{"mpirun", "--allow-run-as-root",    "--bind-to", "none",
                                   "-n",     std::to_string(f.workers)};
  for (const std::string& word : train_command(f)) command.push_back(word);
  const auto replica = [&](int replicas, Json container) {
    return Json{{"replicas", replicas},
                {"restartPolicy", "Never"},
                {"template", pod_template(f.name, pod(f, std::move(container)))}};
  };
  return resource(f, "kubeflow.org/v2beta1", "MPIJob", f.name,
                  {{"slotsPerWorker", 1},
                   {"launcherCreationPolicy", "WaitForWorkersReady"},
                   {"mpiImplementation", "OpenMPI"},
                   {"runPolicy", {{"cleanPodPolicy", "Running"}, {"backoffLimit", 12}}},
                   {"mpiReplicaSpecs",
                    {{"Launcher", replica(1, container(f, "launcher", std::move(command), false))},
                     {"Worker", replica(f.workers, container(f, "worker", {"/usr/sbin/sshd", "-De"},
                                                             true))}}}});
}

Json tensorboard(const RenderFlags& f) {
  const std::string name = f.name + "-tensorboard";
  Json one =
      container(f, "tensorboard",
                {"tensorboard", "--bind_all", "--logdir", value_of(f.flags, "--summary")}, false);
  one["image"] = f.tensorboard_image;
  return resource(f, "apps/v1", "Deployment", name,
                  {{"replicas", 1},
                   {"selector", {{"matchLabels", {{"app", name}}}}},
                   {"template", pod_template(name, pod(f, std::move(one)))}});
}

// Returns what a user has to do besides, a line each.
std::vector<std::string> notes(const RenderFlags& f) {
  std::vector<std::string> lines;
  if (needs_secret(f))
    lines.push_back(
        fmt::format("the pods need a secret, which this makes once: kubectl create secret generic "
                    "{}-secret --from-literal=secret=\"$(openssl rand -hex 32)\"",
                    f.name));
  if (f.servers > 0 && !encrypts(f))
    lines.emplace_back(
        "any pod can connect to the tasks (--insecure): add --tls-* flags, or a NetworkPolicy");
  if (f.tensorboard)
    lines.push_back(
        fmt::format("TensorBoard: kubectl port-forward deployment/{}-tensorboard 6006", f.name));
  return lines;
}

std::string manifests(const RenderFlags& f) try {
  std::vector<Json> all = f.form == "job" ? indexed_jobs(f) : std::vector<Json>{mpi_job(f)};
  if (f.evaluator)
    all.push_back(
        job(f, f.name + "-evaluator",
            pod(f, container(f, "evaluator", train_command(f, {"--task", "evaluator"}), true))));
  if (f.tensorboard) all.push_back(tensorboard(f));
  std::string text;
  for (const std::string& line : notes(f)) text += "# " + line + "\n";
  for (const Json& one : all) text += "---\n" + to_yaml(one);
  return text;
} catch (const nlohmann::json::type_error&) {
  throw engine::Error(engine::Code::kInvalid, "a flag is not UTF-8, which manifests must be");
}

}  // namespace

Command add_render(CLI::App& app) {
  auto f = std::make_shared<RenderFlags>();  // lives as long as the parser's callbacks
  app.option_defaults()->group("Job");
  app.add_option("--workers", f->workers, "pods that train")
      ->check(whole_number(1, 4096))
      ->required();
  app.add_option("--servers", f->servers, "pods of parameter servers")
      ->check(whole_number(0, 1024))
      ->capture_default_str();
  app.add_flag("--evaluator", f->evaluator, "a pod that evaluates each checkpoint");
  app.add_flag("--tensorboard", f->tensorboard,
               "a pod with TensorBoard, which shows the run's summary");
  app.add_option("--gpus", f->gpus, "GPUs of each pod that trains or evaluates")
      ->check(whole_number(0, 64))
      ->capture_default_str();
  app.add_option("flags", f->flags, "flags of lockstep train, after --")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.option_defaults()->group("Cluster");
  app.add_option("--form", f->form,
                 "job: Indexed Jobs, which need no operator; mpijob: an MPIJob (v2beta1)")
      ->check(one_of({"job", "mpijob"}))
      ->capture_default_str();
  app.add_option("--name", f->name, "name of the job, and beginning of all names")
      ->capture_default_str();
  app.add_option("--image", f->image, "container image with lockstep")->capture_default_str();
  app.add_option("--tensorboard-image", f->tensorboard_image, "container image with TensorBoard")
      ->capture_default_str();
  app.add_option("--volume", f->volume,
                 "CLAIM:PATH: claim of a volume that all pods share, and its folder in them");
  end_help(app,
           "  lockstep render --workers 3 -- --model resnet20 --epochs 20 | kubectl apply -f -\n"
           "  lockstep render --workers 4 --evaluator --volume runs:/runs -- --checkpoints /runs/a "
           "--eval 0");
  return [f](const Program&) {
    require_possible(*f);
    print(manifests(*f));
    for (const std::string& line : notes(*f)) complain(line);  // a pipe hides the comments
    return int(kDone);
  };
}

}  // namespace lockstep::tools
