// SPDX-License-Identifier: MIT
// Everything that a program needs to train, in one include and one namespace.
//
//   lockstep::Session session(argc, argv);
//   auto strategy = lockstep::collective_all_reduce(session);   // or mirrored(session),
//                                                               // parameter_server(session)
//   auto digits = lockstep::data::idx(argv[1]);
//   lockstep::Trainer trainer(strategy, lockstep::models::mnist_cnn(),
//                             lockstep::optim::sgd({.rate = 0.05, .momentum = 0.9}));
//   trainer.fit(*digits.train, {.epochs = 6, .global_batch = 64, .checkpoints = "runs/digits"});
//   const double accuracy = trainer.evaluate(*digits.test).accuracy;  // the same in all processes
//   if (strategy.membership().chief) fmt::print("accuracy {:.4f}\n", accuracy);
//
// Callers need to handle only lockstep::Error, and what their own callbacks throw. A whole program:
// test/face/mirrored.cpp.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "collectives/communicator/buckets.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/random.h"
#include "engine/data/augmented.h"
#include "engine/data/dataset.h"
#include "engine/data/sets.h"
#include "engine/nn/gradient_check.h"
#include "engine/nn/graph_spec.h"
#include "engine/nn/initial.h"
#include "engine/nn/layers.h"
#include "engine/nn/loss.h"
#include "engine/optim/optimizer.h"
#include "engine/reference/reference_device.h"
#include "engine/report/summary.h"
#include "engine/train/job_trace.h"
#include "engine/train/trainer.h"
#include "strategies/session/factories.h"
#include "strategies/session/parameter_server_job.h"
#include "strategies/session/ranks.h"
#include "strategies/session/session.h"

namespace lockstep {

using collectives::Network;
using engine::BFloat16;
using engine::chrome_trace;
using engine::Code;
using engine::EpochReport;
using engine::Error;
using engine::Evaluation;
using engine::Fallback;
using engine::FitOptions;
using engine::GraphSpec;
using engine::Half;
using engine::History;
using engine::Log;
using engine::LossScaling;
using engine::Profile;
using engine::require;
using engine::StepReport;
using engine::Strategy;
using engine::Summary;
using engine::Trainer;
using engine::TrainerOptions;
using strategies::collective_all_reduce;
using strategies::CollectiveAllReduce;
using strategies::GpuExchange;
using strategies::Graphs;
using strategies::make_parameter_server;
using strategies::make_strategy;
using strategies::mirrored;
using strategies::Mirrored;
using strategies::parameter_server;
using strategies::ParameterServerJob;
using strategies::ServerOptions;
using strategies::Session;
using strategies::SessionOptions;
using strategies::StepChoices;
using strategies::StrategyOptions;
using strategies::Update;

// Names for your own training loop, experimental: strategies/README.md, test/face/own_loop.cpp.
using collectives::BucketOptions;
using collectives::Buckets;
using collectives::Communicator;
using collectives::CommunicatorOptions;
using collectives::Gradient;
using collectives::Reduce;
using strategies::communicator;
using strategies::MpiCommunicator;
using strategies::run_ranks;

// Names for your own layers, losses and data sets: engine/README.md, test/face/own_*.cpp.
using engine::BackwardArguments;
using engine::check_gradient;
using engine::Context;
using engine::Dataset;
using engine::DType;
using engine::ForwardArguments;
using engine::GradientCheck;
using engine::GradientCheckOptions;
using engine::Group;
using engine::Layer;
using engine::Loss;
using engine::ParameterSpec;
using engine::reference_ops;
using engine::Shape;
using engine::StepState;
using engine::Tensor;

// Names for your own models: models/README.md.
using engine::add;
using engine::average_pool;
using engine::batch_norm;
using engine::columns;
using engine::concatenate;
using engine::constant;
using engine::convolution;
using engine::dense;
using engine::dropout;
using engine::embedding;
using engine::flatten;
using engine::global_average_pool;
using engine::glorot_uniform;
using engine::he_normal;
using engine::LayerPtr;
using engine::max_pool;
using engine::mean_squared_error;
using engine::relu;
using engine::softmax_cross_entropy;
using engine::tanh;
using engine::uniform_within;

// Functions that make the models, and a registry by name: models/README.md.
namespace models {
engine::GraphSpec mlp();
engine::GraphSpec mlp_wide();
engine::GraphSpec lenet5();
engine::GraphSpec mnist_cnn();
engine::GraphSpec wide_deep();
engine::GraphSpec build(std::string_view name);
}  // namespace models

namespace data = engine::data;
namespace optim = engine::optim;

}  // namespace lockstep
