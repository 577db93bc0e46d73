// SPDX-License-Identifier: MIT
#include "tools/train_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "collectives/registry.h"
#include "collectives/size_rules.h"
#include "collectives/vendor_sum.h"
#include "engine/base/error.h"
#include "models/registry.h"
#include "tools/bounds.h"
#include "tools/tls_flags.h"

namespace lockstep::tools {
namespace {

constexpr std::int64_t kMostWhole = 1'000'000'000;
constexpr double kMostNumber = 1e30;
constexpr std::int64_t kMostReplicas = 256;   // threads of one process, each with a whole model
constexpr std::int64_t kMostProfiled = 1000;  // steps
constexpr std::size_t kBucketUnit = std::size_t(1) << 20;  // of a number alone
constexpr std::size_t kMostBucket = std::size_t(64) << 30;
constexpr std::int64_t kMostExamples = 1'000'000;  // generated ones, which are kept in memory

// A name, or rules by size that name them.
CLI::Validator algorithms() {
  std::string names = "auto";
  for (const auto& algorithm : collectives::all_reduce_algorithms())
    names += fmt::format(", {}", algorithm.name);
  names += fmt::format(", {}", fmt::join(collectives::kVendorSums, ", "));
  auto check = [names](const std::string& text) -> std::string {
    if (collectives::is_vendor_sum(text)) return "";
    try {
      for (const auto& rule : collectives::parse_size_rules(text)) {
        const auto known = collectives::all_reduce_algorithms();
        if (std::ranges::find(known, rule.algorithm, &collectives::Algorithm::name) == known.end())
          return fmt::format("'{}' is none; known: {}; by size: direct:..64k,ring:64k..",
                             rule.algorithm, names);
      }
    } catch (const engine::Error& error) {
      return error.what();
    }
    return "";
  };
  return {check, names + "; by size: direct:..64k,ring:64k.."};
}

// The models that can be computed again block by block.
std::string models_with_blocks() {
  std::vector<std::string> names = models::names();
  std::erase_if(names, [](const std::string& name) {
    return std::ranges::none_of(models::build(name).nodes(),
                                [](const auto& node) { return node.block > 0; });
  });
  return fmt::format("{}", fmt::join(names, " and "));
}

}  // namespace

std::size_t TrainFlags::bucket_bytes() const {
  return collectives::parse_size(bucket, kBucketUnit);
}

std::size_t TrainFlags::gpu_memory_bytes() const {
  return collectives::parse_size(gpu_memory);
}

std::size_t TrainFlags::memory_limit_bytes() const {
  return collectives::parse_size(memory_limit);
}

void declare(CLI::App& app, TrainFlags& f) {
  const CLI::Validator counts = whole_number(0, kMostWhole),
                       at_least_one = whole_number(1, kMostWhole);
  app.add_option("--model", f.model, "one of: " + models::list())->capture_default_str();
  app.add_option("--data", f.data,
                 "folder of IDX files (MNIST and its family) or of CIFAR-10's .bin files; for "
                 "wide_deep, a file in Criteo's text format; or 'random' for one batch of random "
                 "examples; without it, digits, colour images or clicks that the program draws")
      ->check(file_name("a file or folder, or random"));
  app.add_option("--test", f.test,
                 "for wide_deep with --data FILE: a file of test data in the same format; folders "
                 "have test data of their own")
      ->check(file_name("a file"));
  app.add_option("--strategy", f.strategy,
                 "replicas of this process, or of all that mpirun started; or replicas that share "
                 "variables on servers (default: collective_all_reduce where mpirun started "
                 "several processes, else mirrored)")
      ->check(one_of({"mirrored", "collective_all_reduce", "parameter_server"}));
  app.add_option("--replicas", f.replicas,
                 "replicas per process: under mpirun each process has so many (default: 1; on "
                 "--device cuda one on each GPU of the process)")
      ->check(whole_number(1, kMostReplicas));
  app.add_option("--batch", f.batch, "examples of a step over all replicas")
      ->check(at_least_one)
      ->capture_default_str();
  app.add_option("--epochs", f.epochs,
                 "passes over the training data, those before a restart included (default: 6)")
      ->check(counts);
  app.add_option("--steps", f.steps, "steps in all, instead of --epochs; 0: epochs count")
      ->check(counts)
      ->capture_default_str();
  app.add_option("--accumulate", f.accumulate, "micro-batches of each replica's share")
      ->check(at_least_one)
      ->capture_default_str();
  app.add_option("--optimizer", f.optimizer, "update rule")
      ->check(one_of({"sgd", "adam", "adamw", "lars"}))
      ->capture_default_str();
  app.add_option("--rate", f.rate,
                 "learning rate (default: sgd 0.02, adam and adamw 0.001, lars 1)")
      ->check(number_above(0, kMostNumber));
  app.add_option("--momentum", f.momentum,
                 "of sgd and lars, at least 0 and below 1 (default: 0.9)");
  app.add_flag("--nesterov", f.nesterov, "Nesterov's momentum for sgd");
  app.add_option("--trust", f.trust,
                 "of lars: a weight's rate is this part of its norm over its gradient's (default: "
                 "0.001)")
      ->check(number_above(0, kMostNumber));
  app.add_option("--weight-decay", f.weight_decay,
                 "weight decay, of weights alone: not of biases and normalisations")
      ->check(number_from(0, kMostNumber))
      ->capture_default_str();
  app.add_flag("--decay-all", f.decay_all, "--weight-decay is of all parameters");
  app.add_option("--label-smoothing", f.label_smoothing,
                 "in training this part of each label is spread over all classes, at least 0 and "
                 "below 1, e.g. 0.1; losses of test data are of the labels as they are")
      ->capture_default_str();
  app.add_option("--clip", f.clip, "largest global norm of the gradient; 0: no clipping")
      ->check(number_from(0, kMostNumber))
      ->capture_default_str();
  app.add_option("--schedule", f.schedule, "constant or cosine, e.g. cosine:warmup=100,last=0.1")
      ->capture_default_str();
  app.add_option("--seed", f.seed, "of start values, order and dropout")
      ->check(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  app.add_option("--examples", f.examples,
                 "generated digits, images or clicks to train on, without --data (default: 8000, "
                 "100000 clicks)")
      ->check(whole_number(1, kMostExamples));
  app.add_option("--augment", f.augment,
                 "training images with 4 pixels around, black for digits and the mean for colours, "
                 "and cropped, flipped left to right, anew in each epoch by --seed")
      ->check(one_of({"none", "crop", "flip", "crop,flip"}))
      ->capture_default_str();
  app.add_option("--threads", f.threads, "library threads of a replica; 0: cores shared equally")
      ->check(whole_number(0, 4096))
      ->capture_default_str();
  auto* const device =
      app.add_option("--device", f.device,
                     "of all replicas: cpu; cuda:0 and so on; cuda: the GPUs of this host, which "
                     "its processes share; or reference: plain loops, slow")
          ->capture_default_str();
  app.add_option("--devices", f.devices,
                 "a device for each replica of this process, as in cuda:0,cuda:1; one may stand "
                 "there more than once")
      ->delimiter(',')
      ->excludes(device)
      ->excludes("--replicas");
  app.add_option("--memory-fraction", f.memory_fraction,
                 "of each GPU's free memory that this process may take")
      ->check(number_above(0, 1))
      ->capture_default_str();
  app.add_option("--gpu-memory", f.gpu_memory,
                 "of each GPU that this process may take at most, e.g. 8g; in bytes where no unit "
                 "stands; 0: what --memory-fraction allows")
      ->check(byte_size(0, kMostMemory))
      ->capture_default_str();
  app.add_option("--tf32", f.tf32,
                 "on GPUs: products of float32 with 10 bits of mantissa, several times as fast")
      ->check(one_of({"on", "off"}))
      ->capture_default_str();
  app.add_option("--steps-per-execution", f.steps_per_execution,
                 "steps that are reported together: replicas meet for their losses once, and the "
                 "log has a line for all of them")
      ->check(at_least_one)
      ->capture_default_str();
  app.add_option("--steps-ahead", f.steps_ahead,
                 "on GPUs: steps that are queued before the numbers of one are read; with 0 a loss "
                 "that is not finite is traced to its layer, and GPUs wait between steps")
      ->check(whole_number(0, 1))
      ->capture_default_str();
  app.add_option("--graphs", f.graphs,
                 "on GPUs: a step's kernels are recorded once, and then started by one call; the "
                 "same bits. Off where the host takes part in a step, as the first lines say")
      ->check(one_of({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_option(
         "--dtype", f.dtype,
         "of weights, gradients and what layers compute (default: what the device prefers; a run "
         "that goes on need not have its checkpoint's); bfloat16 and float16 keep float32 masters "
         "of the weights; float16 is of --device cuda, float64 of --device reference alone")
      ->check(one_of({"float32", "float64", "bfloat16", "float16"}));
  app.add_option(
         "--loss-scale", f.loss_scale,
         "losses are multiplied by it while gradients are computed: a number, or dynamic, "
         "which is halved after a step whose gradients are not finite (that changes "
         "nothing) and doubled after 2000 others (default: the checkpoint's; else dynamic of "
         "float16, and none of other types)")
      ->type_name("TEXT or a number alone: it counts as it stands");
  app.add_option("--algorithm", f.algorithm,
                 "of the all-reduce, or algorithms by the bytes of a bucket")
      ->check(algorithms())
      ->capture_default_str();
  app.add_flag("--assumed", f.assumed, "choose without measuring first what ranks cost each other");
  app.add_option("--update", f.update, "fused into the all-reduce, or apart from it")
      ->check(one_of({"auto", "fused", "apart"}))
      ->capture_default_str();
  app.add_option("--kernels", f.kernels,
                 "of layers: the fastest, each sum product by product, or Winograd's wherever "
                 "convolutions can use it")
      ->check(one_of({"auto", "direct", "winograd"}))
      ->capture_default_str();
  app.add_option("--batch-norm", f.batch_norm,
                 "statistics of each replica's own batch, or of all replicas' together: then N "
                 "replicas make the step of one")
      ->check(one_of({"local", "synchronised"}))
      ->capture_default_str();
  app.add_flag("--recompute", f.recompute,
               "keep of the model's blocks their outputs alone, and compute the rest again in "
               "backward: less memory, the same bits, about a third more time (" +
                   models_with_blocks() + " have blocks)");
  app.add_option("--bind", f.bind, "replicas to processors of their own, where that fits")
      ->check(one_of({"auto", "none"}))
      ->capture_default_str();
  app.add_option("--bucket", f.bucket,
                 "gradients that are summed together, e.g. 512k; in MiB where no unit stands; 0: "
                 "chosen")
      ->check(byte_size(0, kMostBucket, kBucketUnit))
      ->capture_default_str();
  declare(app, f.network);
  app.add_option("--memory-limit", f.memory_limit,
                 "that each process may take in all, e.g. 2g; in bytes where no unit stands; 0: "
                 "what there is. Of parameter_server: each server's task for its variables")
      ->check(byte_size(0, kMostMemory))
      ->capture_default_str();
  app.add_option("--deadline", f.deadline_seconds,
                 "seconds that a replica waits for another (default: 60, or, of an all-reduce, 20 "
                 "median steps where those "
                 "are longer)")
      ->check(number_above(0, 1e6));
  app.add_option("--servers", f.servers, "of parameter_server: who keep the variables")
      ->check(whole_number(1, kMostReplicas))
      ->capture_default_str();
  app.add_flag("--sync", f.updates.synchronous,
               "of parameter_server: each update waits for all workers");
  app.add_option("--aggregate", f.updates.aggregate,
                 "with --sync: so many gradients make an update, later ones are dropped; 0: all")
      ->check(whole_number(0, 100'000))
      ->capture_default_str();
  app.add_flag_callback(
      "--full-rate", [&f] { f.updates.scale_rate = false; },
      "of parameter_server: the rate is not divided by 1 + staleness of the gradient");
  app.add_option("--most-staleness", f.updates.most_staleness,
                 "of parameter_server: staler gradients are dropped; 0: none are")
      ->check(counts)
      ->capture_default_str();
  app.add_option("--warm-up", f.updates.warm_up,
                 "of parameter_server: the first so many steps are made by one worker alone")
      ->check(counts)
      ->capture_default_str();
  app.add_option(
         "--prefetch", f.prefetch,
         "of parameter_server, asynchronous: all of the next step's weights come with the "
         "answers to gradients, already during backward; off: those of late layers are asked "
         "for when all gradients were answered")
      ->check(one_of({"on", "off"}))
      ->capture_default_str();
  app.add_option("--tables", f.tables,
                 "of parameter_server: of embeddings' tables the touched rows travel, or they "
                 "travel whole")
      ->check(one_of({"rows", "whole"}))
      ->capture_default_str();
  app.add_option("--wire", f.wire,
                 "gradients of float32 travel between hosts as they are, or in 16 bits; of "
                 "parameter_server between tasks, and weights too (default: as they are, or as the "
                 "checkpoint has it)")
      ->check(one_of({"float32", "bfloat16"}));
  app.add_option("--gpu-exchange", f.gpu_exchange,
                 "of collective_all_reduce, how GPUs of several processes of a host exchange: ipc: "
                 "kernels reach the memory of all of them; host: through memory of the host; auto: "
                 "ipc where that can be and NCCL does not add")
      ->check(one_of({"auto", "ipc", "host"}))
      ->capture_default_str();
  app.add_option("--place", f.place,
                 "of parameter_server: variables to servers in turn, or by bytes")
      ->check(one_of({"round_robin", "greedy"}))
      ->capture_default_str();
  app.add_option("--partition", f.partition,
                 "of parameter_server: cut variables by rows: none, fixed:3, min:64KiB, max:4MiB")
      ->capture_default_str();
  declare(app, f.tls);
  app.add_flag("--insecure", f.insecure,
               "of parameter_server: other hosts may reach the chief without TLS");
  app.add_option("--restarts", f.restarts,
                 "of parameter_server under mpirun: a task that is killed is started again so "
                 "often")
      ->check(whole_number(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--config", f.config,
                 "JSON file of flags, e.g. {\"epochs\": 6, \"json\": true}; flags on the command "
                 "line win");
  app.add_option("--checkpoints", f.checkpoints,
                 "folder: continues from what it holds, and saves there")
      ->check(file_name("a folder"));
  app.add_option("--every", f.every, "steps or time between checkpoints; 0: after each epoch")
      ->check(steps_or_time())
      ->capture_default_str();
  app.add_option("--keep", f.keep, "checkpoints that stay")
      ->check(at_least_one)
      ->capture_default_str();
  app.add_option("--eval", f.evaluate_every,
                 "epochs between evaluations of the test data; 0: only at the end")
      ->check(counts)
      ->capture_default_str();
  app.add_option("--log", f.log, "file for JSON lines: a line a step, evaluation, checkpoint")
      ->check(file_name());
  app.add_option("--summary", f.summary,
                 "folder for TensorBoard: a new event file of scalars by step")
      ->check(file_name("a folder"));
  app.add_option("--profile", f.profile,
                 "file for a Chrome trace of some steps of all replicas; opens in Perfetto")
      ->check(file_name());
  app.add_option("--profile-steps", f.profile_steps,
                 "steps in the trace of --profile; the first ten are left out where the run is "
                 "long enough (default: 20)")
      ->check(whole_number(1, kMostProfiled));
  app.add_flag("--placement", f.placement,
               "print where each variable lies, its bytes and its bucket, before the first step");
  app.add_flag("--json", f.json, "print one JSON object as the last line of standard output");
}

}  // namespace lockstep::tools
