// SPDX-License-Identifier: MIT
#include "tools/train_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "collectives/algorithms/registry.h"
#include "collectives/algorithms/vendor_sum.h"
#include "collectives/cost/size_rules.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"
#include "models/registry.h"
#include "tools/bounds.h"
#include "tools/help.h"
#include "tools/tls_flags.h"
#include "tools/train_result.h"

namespace lockstep::tools {
namespace {

constexpr std::int64_t kMostWhole = 1'000'000'000;
constexpr double kMostNumber = 1e30;
// Replicas are threads of one process, and each has a whole model.
constexpr std::int64_t kMostReplicas = 256;
constexpr std::int64_t kMostProfiled = 1000;               // steps
constexpr std::size_t kBucketUnit = std::size_t(1) << 20;  // unit of a plain number
constexpr std::size_t kMostBucket = std::size_t(64) << 30;
constexpr std::int64_t kMostExamples = 1'000'000;  // generated examples are kept in memory

// Accepts a name, or rules by size that contain names.
CLI::Validator algorithms() {
  std::vector<std::string> names{"auto"};
  for (const auto& algorithm : collectives::all_reduce_algorithms())
    names.emplace_back(algorithm.name);
  names.insert(names.end(), collectives::kVendorSums.begin(), collectives::kVendorSums.end());
  auto check = [names](const std::string& text) -> std::string {
    if (collectives::is_vendor_sum(text)) return "";
    try {
      for (const auto& rule : collectives::parse_size_rules(text)) {
        const auto known = collectives::all_reduce_algorithms();
        if (std::ranges::find(known, rule.algorithm, &collectives::Algorithm::name) == known.end())
          return fmt::format(
              "unknown all-reduce algorithm '{}'{}; by size: direct:..64k,ring:64k..",
              engine::brief(rule.algorithm), engine::known_names(rule.algorithm, names));
      }
    } catch (const engine::Error& error) {
      return error.what();
    }
    return "";
  };
  return with_completions(
      {check, fmt::format("{}; by size: direct:..64k,ring:64k..", fmt::join(names, ", "))}, names);
}

// Returns the models that can be recomputed block by block.
std::string models_with_blocks() {
  std::vector<std::string> names = models::names();
  std::erase_if(names, [](const std::string& name) {
    return std::ranges::none_of(models::build(name).nodes(),
                                [](const auto& node) { return node.block > 0; });
  });
  return fmt::format("{}", fmt::join(names, " and "));
}

// The following functions declare the flags of one group each, in the order of `--help`.

void declare_model(CLI::App& app, TrainFlags& f) {
  app.option_defaults()->group("Model");
  app.add_option("--model", f.model, "model: " + models::list())
      ->check(suggested(models::names()))
      ->capture_default_str();
  app.add_option("--batch-norm", f.batch_norm,
                 "statistics of batch norm: local (of each replica's batch) or synchronised (of "
                 "the global batch, so that N replicas compute the step of one)")
      ->check(one_of({"local", "synchronised"}))
      ->capture_default_str();
  app.add_flag("--recompute", f.recompute,
               "store only the outputs of blocks and recompute the rest in backward: less memory, "
               "the same bits, about a third more time (" +
                   models_with_blocks() + " have blocks)");
  app.add_option("--kernels", f.kernels,
                 "kernels of layers: auto (the fastest), direct (each sum product by product) or "
                 "winograd (for all convolutions that can use it)")
      ->check(one_of({"auto", "direct", "winograd"}))
      ->capture_default_str();
}

void declare_data(CLI::App& app, DataChoice& f) {
  app.option_defaults()->group("Data");
  app.add_option("--data", f.data,
                 "folder of IDX files (MNIST and its family) or of CIFAR-10's .bin files; a file "
                 "in Criteo's text format for wide_deep; or 'random', one batch of random "
                 "examples (default: generated digits, images or clicks)")
      ->check(file_name("a file or folder, or random"));
  app.add_option("--test", f.test,
                 "file of test data for wide_deep with --data FILE; folders contain their own")
      ->check(file_name("a file"));
  app.add_option("--examples", f.examples,
                 "number of generated training examples, without --data (default: 8000, for "
                 "clicks 100000)")
      ->check(whole_number(1, kMostExamples));
  app.add_option("--augment", f.augment,
                 "augmentation of training images, new in each epoch: crop (pad by 4 pixels, crop "
                 "at random), flip (left to right), or both")
      ->check(one_of({"none", "crop", "flip", "crop,flip"}))
      ->capture_default_str();
  app.add_option("--seed", f.seed, "seed of initial weights, order of examples and dropout")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
}

void declare_training(CLI::App& app, TrainFlags& f) {
  app.option_defaults()->group("Training");
  app.add_option("--batch,--batch-size", f.data.global_batch,
                 "global batch size: examples of a step, over all replicas")
      ->check(whole_number(1, kMostWhole))
      ->capture_default_str();
  app.add_option("--epochs", f.training.epochs,
                 "passes over the training data, those before a restart included (default: 6)")
      ->check(whole_number(0, kMostWhole));
  app.add_option("--steps", f.training.steps,
                 "number of steps instead of --epochs; 0: use --epochs")
      ->check(whole_number(0, kMostWhole))
      ->capture_default_str();
  app.add_option("--accumulate", f.training.accumulate, "micro-batches per replica and step")
      ->check(whole_number(1, kMostWhole))
      ->capture_default_str();
  app.add_option("--label-smoothing", f.training.label_smoothing,
                 "part of each training label that is spread over all classes; at least 0 and "
                 "below 1, e.g. 0.1; the test loss uses the labels as they are")
      ->capture_default_str();
  app.add_option("--eval", f.training.evaluate_every,
                 "epochs between evaluations of the test data; 0: only at the end")
      ->check(whole_number(0, kMostWhole))
      ->capture_default_str();
  app.add_option(
         "--dtype", f.training.dtype,
         "type of weights, gradients and activations; bfloat16 and float16 keep float32 master "
         "weights; float16 needs --device cuda, float64 needs --device reference (default: the "
         "device's preferred type)")
      ->check(one_of({"float32", "float64", "bfloat16", "float16"}, dtype_synonyms()));
  app.add_option(
         "--loss-scale", f.training.loss_scale,
         "factor of the loss in backward; or dynamic, which halves it after a step with "
         "gradients that are not finite (this step is skipped) and doubles it after 2000 other "
         "steps (default: the checkpoint's; else dynamic for float16, and none for other types)")
      ->type_name("TEXT:a number alone: the factor")
      ->check(suggested({"dynamic"}));
  app.add_option("--steps-per-execution", f.training.steps_per_execution,
                 "steps that are reported together; replicas exchange their losses once for them")
      ->check(whole_number(1, kMostWhole))
      ->capture_default_str();
}

void declare_optimizer(CLI::App& app, TrainFlags::Optimizer& f) {
  app.option_defaults()->group("Optimizer");
  app.add_option("--optimizer", f.name, "optimizer")
      ->check(one_of({"sgd", "adam", "adamw", "lars"}))
      ->capture_default_str();
  app.add_option("--rate,--lr,--learning-rate", f.rate,
                 "learning rate (default: sgd 0.02, adam and adamw 0.001, lars 1)")
      ->check(number_above(0, kMostNumber));
  app.add_option("--momentum", f.momentum,
                 "momentum of sgd and lars, at least 0 and below 1 (default: 0.9)");
  app.add_flag("--nesterov", f.nesterov, "Nesterov momentum, for sgd");
  app.add_option("--trust", f.trust,
                 "trust coefficient of lars: the rate of a weight is this times the weight's norm "
                 "over its gradient's norm (default: 0.001)")
      ->check(number_above(0, kMostNumber));
  app.add_option("--weight-decay,--wd", f.weight_decay,
                 "weight decay of weights, not of biases and normalizations")
      ->check(number_from(0, kMostNumber))
      ->capture_default_str();
  app.add_flag("--decay-all", f.decay_all, "apply --weight-decay to all parameters");
  app.add_option("--clip", f.clip, "largest global norm of the gradient; 0: no clipping")
      ->check(number_from(0, kMostNumber))
      ->capture_default_str();
  app.add_option("--schedule", f.schedule,
                 "schedule of the learning rate: constant or cosine, e.g. "
                 "cosine:warmup=100,last=0.1")
      ->capture_default_str();
}

void declare_strategy(CLI::App& app, TrainFlags& f) {
  app.option_defaults()->group("Strategy");
  app.add_option("--strategy", f.strategy,
                 "training strategy: mirrored trains in this process, collective_all_reduce in all "
                 "processes that "
                 "mpirun started, parameter_server with variables on servers (default: "
                 "collective_all_reduce if mpirun started several processes, parameter_server if "
                 "TF_CONFIG has servers, else mirrored)")
      ->check(one_of({"mirrored", "collective_all_reduce", "parameter_server"}));
  app.add_option("--task", f.training.task,
                 "evaluator: does not train, but evaluates each checkpoint in --checkpoints once, "
                 "while others train")
      ->check(one_of({"evaluator"}));
  app.add_option("--replicas", f.replicas,
                 "replicas per process, under mpirun too (default: 1; on GPUs one on each GPU of "
                 "the process)")
      ->check(whole_number(1, kMostReplicas));
  app.add_option("--update", f.update,
                 "where the optimizer runs: fused into the all-reduce, or separate from it")
      ->check(one_of({"auto", "fused", "separate"}))
      ->capture_default_str();
  app.add_option("--deadline", f.deadline_seconds,
                 "seconds to wait for another replica before the job ends (default: 60; in "
                 "training at least 20 median steps)")
      ->check(number_above(0, 1e6));
  app.add_option("--memory-limit", f.memory_limit,
                 "largest memory of each process, e.g. 2g; 0: all that is free; with "
                 "parameter_server the limit of each server's variables")
      ->check(byte_size(0, kMostMemory))
      ->capture_default_str();
}

void declare_servers(CLI::App& app, TrainFlags::Servers& f) {
  app.option_defaults()->group("Parameter servers (--strategy parameter_server)");
  app.add_option("--servers", f.number, "servers that keep the variables")
      ->check(whole_number(1, kMostReplicas))
      ->capture_default_str();
  app.add_flag("--sync", f.updates.synchronous, "each update waits for all workers");
  app.add_option("--aggregate", f.updates.aggregate,
                 "gradients per update; needs --sync; later ones are dropped; 0: all")
      ->check(whole_number(0, 100'000))
      ->capture_default_str();
  app.add_flag_callback(
      "--full-rate", [&f] { f.updates.scale_rate = false; },
      "do not divide the learning rate by 1 + the staleness of the gradient");
  app.add_option("--most-staleness", f.updates.most_staleness,
                 "drop gradients that are staler than this; 0: drop none")
      ->check(whole_number(0, kMostWhole))
      ->capture_default_str();
  app.add_option("--warm-up", f.updates.warm_up,
                 "number of first steps that one worker computes alone")
      ->check(whole_number(0, kMostWhole))
      ->capture_default_str();
  app.add_option("--prefetch", f.prefetch,
                 "fetch weights during backward; pays on slow links, in asynchronous training; off "
                 "fetches those of late "
                 "layers after all gradients were pushed")
      ->check(one_of({"on", "off"}))
      ->capture_default_str();
  app.add_option(
         "--tables", f.tables,
         "what is sent of embedding tables: the rows that a batch touches, or whole tables; "
         "GPUs need whole")
      ->check(one_of({"rows", "whole"}))
      ->capture_default_str();
  app.add_option("--place", f.place, "placement of variables: in turn, or by bytes")
      ->check(one_of({"round_robin", "greedy"}))
      ->capture_default_str();
  app.add_option("--partition", f.partition,
                 "split variables by rows: none, fixed:3, min:64KiB or max:4MiB")
      ->capture_default_str();
  declare(app, f.tls);
  app.add_flag("--insecure", f.insecure,
               "let other hosts take part without TLS and without a secret");
  app.add_option("--restarts", f.restarts, "restarts of a task that was killed; under mpirun")
      ->check(whole_number(0, 1'000'000))
      ->capture_default_str();
}

void declare_communication(CLI::App& app, TrainFlags::Communication& f) {
  app.option_defaults()->group("Communication");
  app.add_option("--algorithm", f.algorithm, "all-reduce algorithm, or algorithms by bucket size")
      ->check(algorithms())
      ->capture_default_str();
  app.add_flag("--assumed", f.assumed,
               "choose by assumed costs instead of measuring the costs between ranks");
  app.add_option("--bucket", f.bucket, "size of a gradient bucket; 0: chosen automatically")
      ->check(byte_size(0, kMostBucket, kBucketUnit))
      ->capture_default_str();
  app.add_option("--wire", f.wire,
                 "type in which float32 gradients travel between hosts; with parameter_server "
                 "gradients and weights between tasks (default: the checkpoint's, else float32)")
      ->check(one_of({"float32", "bfloat16"}));
  app.add_option("--gpu-exchange", f.gpu_exchange,
                 "how GPUs of several processes of a host exchange data: ipc (kernels access the "
                 "memory of all of them), host (through host memory) or auto (ipc if it is "
                 "possible and NCCL is not used)")
      ->check(one_of({"auto", "ipc", "host"}))
      ->capture_default_str();
  declare(app, f.network);
}

void declare_devices(CLI::App& app, TrainFlags::Devices& f) {
  app.option_defaults()->group("Devices");
  auto* const device =
      app.add_option("--device", f.all,
                     "device of all replicas: auto (GPUs if every process can use one, else cpu), "
                     "cpu, cuda (the GPUs of this host, shared by its processes), cuda:N, or "
                     "reference (exact, slow)")
          ->check(suggested({"auto", "cpu", "cuda", "cuda:0", "reference"}))
          ->capture_default_str();
  app.add_option("--devices", f.each,
                 "device of each replica of this process, e.g. cuda:0,cuda:1; a device may be "
                 "named several times")
      ->delimiter(',')
      ->excludes(device)
      ->excludes("--replicas");
  app.add_option("--threads", f.threads, "library threads of a replica; 0: an equal share of cores")
      ->check(whole_number(0, 4096))
      ->capture_default_str();
  app.add_option("--bind", f.bind, "auto binds each replica to processors of its own if that fits")
      ->check(one_of({"auto", "none"}))
      ->capture_default_str();
  app.add_option("--memory-fraction", f.memory_fraction,
                 "largest fraction of each GPU's free memory that this process takes")
      ->check(number_above(0, 1))
      ->capture_default_str();
  app.add_option("--gpu-memory", f.gpu_memory,
                 "largest memory that this process takes of each GPU, e.g. 8g; 0: as much as "
                 "--memory-fraction allows")
      ->check(byte_size(0, kMostMemory))
      ->capture_default_str();
  app.add_option("--tf32", f.tf32,
                 "TF32 for float32 products on GPUs: 10 bits of mantissa, several times as fast")
      ->check(one_of({"on", "off"}))
      ->capture_default_str();
  app.add_option("--steps-ahead", f.steps_ahead,
                 "steps that are queued on GPUs before the numbers of one are read; 0 traces a "
                 "loss that is not finite to its layer, but GPUs wait between steps")
      ->check(whole_number(0, 1))
      ->capture_default_str();
  app.add_option("--graphs", f.graphs,
                 "CUDA graphs: capture a step once and launch it by one call, with the same bits; "
                 "off if the host takes part in a step")
      ->check(one_of({"auto", "on", "off"}))
      ->capture_default_str();
}

void declare_checkpoints(CLI::App& app, TrainFlags::Files& f) {
  app.option_defaults()->group("Checkpoints");
  auto* const folder =
      app.add_option("--checkpoints", f.checkpoints,
                     "folder of checkpoints: resume from the newest one, and save there");
  folder->check(file_name("a folder"));
  app.add_option("--every", f.every, "steps or time between checkpoints; 0: after each epoch")
      ->check(steps_or_time())
      ->capture_default_str();
  app.add_option("--keep", f.keep, "number of checkpoints to keep")
      ->check(whole_number(1, kMostWhole))
      ->needs(folder)
      ->capture_default_str();
}

void declare_output(CLI::App& app, TrainFlags& f) {
  app.option_defaults()->group("Output");
  app.add_option(
         "--log", f.files.log,
         "file of JSON lines, one per event (start, step, evaluation, checkpoint, end); they are "
         "appended")
      ->check(file_name());
  app.add_option("--summary", f.files.summary,
                 "folder for a TensorBoard event file of scalars by step")
      ->check(file_name("a folder"));
  app.add_option("--profile", f.files.profile,
                 "file for a Chrome trace of some steps of all replicas; Perfetto opens it")
      ->check(file_name());
  app.add_option("--profile-steps", f.files.profile_steps,
                 "steps in the trace of --profile; the first ten of a long run are left out "
                 "(default: 20)")
      ->check(whole_number(1, kMostProfiled));
  app.add_flag("--placement", f.placement, "print the location, bytes and bucket of each variable");
  app.add_flag("--json", f.json,
               "print the result as one JSON object on standard output; all other text "
               "goes to standard error");
}

}  // namespace

std::size_t TrainFlags::bucket_bytes() const {
  return collectives::parse_size(communication.bucket, kBucketUnit);
}

std::size_t TrainFlags::gpu_memory_bytes() const {
  return collectives::parse_size(devices.gpu_memory);
}

std::size_t TrainFlags::memory_limit_bytes() const {
  return collectives::parse_size(memory_limit);
}

void declare(CLI::App& app, TrainFlags& f) {
  declare_model(app, f);
  declare_data(app, f.data);
  declare_training(app, f);
  declare_optimizer(app, f.optimizer);
  declare_strategy(app, f);
  declare_servers(app, f.servers);
  declare_communication(app, f.communication);
  declare_devices(app, f.devices);
  declare_checkpoints(app, f.files);
  declare_output(app, f);
  declare(app, f.verbosity);
  app.add_option("--config", f.config,
                 "JSON file of flags, e.g. {\"epochs\": 6, \"json\": true}; flags on the command "
                 "line override it");
  end_help(app,
           "  lockstep train --model mnist_cnn --replicas 4 --epochs 6 --lr 0.02\n"
           "  lockstep train --data mnist/ --checkpoints runs/a --log a.jsonl\n"
           "  mpirun -n 2 lockstep train --model resnet20 --batch 128 --augment crop,flip",
           result_help());
}

}  // namespace lockstep::tools
