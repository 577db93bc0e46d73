// SPDX-License-Identifier: MIT
#include "tools/optimizer_choice.h"

#include "engine/base/error.h"

namespace lockstep::tools {

namespace optim = engine::optim;
using engine::require;

void check_optimizer(const TrainFlags& f) {
  const TrainFlags::Optimizer& o = f.optimizer;
  const bool sgd = o.name == "sgd", lars = o.name == "lars";
  require(sgd || lars || !o.momentum,
          "--momentum is of sgd and lars; {} has none: leave it out, or give --optimizer sgd",
          o.name);
  require(sgd || !o.nesterov,
          "--nesterov is of sgd; {} has none: leave it out, or give --optimizer sgd", o.name);
  require(lars || !o.trust,
          "--trust is of lars; this is {}: leave it out, or give --optimizer lars", o.name);
  require(!lars || o.clip == 0,
          "--clip with --optimizer lars: lars makes gradients that are too long short layer by "
          "layer; leave it out");
  require(!lars || f.update != "fused",
          "--update fused with --optimizer lars: it needs the norms of whole weights and of their "
          "gradients first, which are known when all are summed: use separate");
  require(!lars || f.strategy != "parameter_server",
          "--optimizer lars needs the norms of whole weights and of their gradients at once, and "
          "parameter servers see them in parts: give another --optimizer or --strategy");
  require(!lars || !o.decay_all,
          "--decay-all with --optimizer lars: its biases and normalisations never decay; leave it "
          "out");
  require(!o.decay_all || o.weight_decay > 0,
          "--decay-all without --weight-decay changes nothing: say how much");
}

optim::Optimizer choose_optimizer(const TrainFlags::Optimizer& f) {
  const optim::Schedule schedule = optim::schedule(f.schedule);
  if (f.name == "sgd") {
    return optim::sgd({.rate = f.rate.value_or(0.02),
                       .momentum = f.momentum.value_or(0.9),
                       .nesterov = f.nesterov,
                       .weight_decay = f.weight_decay,
                       .decay_all = f.decay_all,
                       .clip_norm = f.clip,
                       .schedule = schedule});
  }
  if (f.name == "lars") {
    optim::LarsOptions options;
    options.rate = f.rate.value_or(options.rate);
    options.momentum = f.momentum.value_or(options.momentum);
    options.weight_decay = f.weight_decay;
    options.trust = f.trust.value_or(options.trust);
    options.schedule = schedule;
    return optim::lars(options);
  }
  optim::AdamOptions options;
  options.rate = f.rate.value_or(options.rate);
  options.weight_decay = f.weight_decay;
  options.decay_all = f.decay_all;
  options.clip_norm = f.clip;
  options.schedule = schedule;
  return f.name == "adam" ? optim::adam(options) : optim::adamw(options);
}

void smooth_labels(engine::GraphSpec& graph, double smoothing) {
  require(smoothing >= 0 && smoothing < 1,
          "--label-smoothing {}: it is a part of each label, at least 0 and below 1, e.g. 0.1",
          smoothing);
  if (smoothing == 0) return;
  const std::string loss = graph.loss().describe();
  require(loss == engine::softmax_cross_entropy()->describe(),
          "--label-smoothing {}: it is of softmax_cross_entropy, and the loss of {} is {}",
          smoothing, graph.name(), loss);
  graph.set_loss(engine::softmax_cross_entropy({.smoothing = smoothing}));
}

}  // namespace lockstep::tools
