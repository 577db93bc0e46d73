// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/worker_replica.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::strategies {

ParameterServer::Worker::Worker(int worker, const engine::GraphSpec& spec, WorkerOps o,
                                std::size_t rows, engine::GraphOptions options,
                                std::uint64_t run_seed)
    : WorkerOps(std::move(o)),
      Replica(worker, spec, *own_ops, rows,
              {options.recompute, options.compact_rows, host_ops.get(), options.device}),
      Context(*own_ops),
      on_device(!own_ops->in_host_memory()) {
  Replica::context = this;
  Context::state = own_ops->publish(Replica::state);
  Context::seed = run_seed;
  Replica::state.ids = graph.ids();
  const auto bytes = [&](std::size_t elements) {
    const std::size_t blocks = (elements + engine::kBlock - 1) / engine::kBlock;
    return std::max<std::size_t>(1, blocks * engine::kBlock * width());
  };
  weights = own_ops->allocate_shared(bytes(graph.parameters()));
  gradients = own_ops->allocate_shared(bytes(graph.trainable()));
  if (on_device) {
    device_weights_ = own_ops->allocate(bytes(graph.parameters()), "the weights");
    device_gradients_ = own_ops->allocate(bytes(graph.trainable()), "the gradients");
  }
  graph.bind(on_device ? device_weights_.data() : weights.data(),
             on_device ? device_gradients_.data() : gradients.data());
}

void ParameterServer::Worker::reduce(int) {
  engine::fail(engine::Code::kInvalid, "workers of parameter servers do not meet inside a layer");
}

std::size_t ParameterServer::Worker::width() const {
  return engine::size_of(graph.dtype());
}

void ParameterServer::Worker::ask_anew() {
  if (!on_device) return;
  own_ops->synchronize();
  arrived_.clear();
}

void ParameterServer::Worker::arrived(engine::Range range) {
  if (!on_device || range.empty()) return;
  if (std::ranges::find(arrived_, range) != arrived_.end()) return;
  arrived_.push_back(range);
  const std::size_t at = range.begin * width();
  own_ops->copy_bytes(weights.data() + at, device_weights_.data() + at, range.size() * width());
}

// Copies concurrently with the later kernels of backward.
void ParameterServer::Worker::push(engine::Range range, const ServerWorker::Step& step) {
  if (!on_device) return servers->push(range.end, step);
  const std::size_t at = range.begin * width();
  const std::byte* const from = device_gradients_.data() + at;
  std::byte* const to = gradients.data() + at;
  engine::ReduceArguments copy;
  copy.dtype = graph.dtype();
  copy.from = {&from, 1};
  copy.to = {&to, 1};
  copy.count = range.size();
  own_ops->reduce_behind_kernels();
  own_ops->reduce(copy);
  own_ops->record_event(events_);
  leaving_.push_back({range.end, step, events_++});
  push_copied(false);
}

void ParameterServer::Worker::push_all() {
  push_copied(true);
  events_ = 0;
}

void ParameterServer::Worker::push_copied(bool all) {
  for (; !leaving_.empty(); leaving_.pop_front()) {
    const Leaving& first = leaving_.front();
    if (all) own_ops->wait_for_event(first.event);
    if (!all && !own_ops->is_done(first.event)) return;
    servers->push(first.end, first.step);
  }
}

void ParameterServer::Worker::begin() {
  began.reset();
  pushed = fixed = false;
  ahead = 0;
  reported.reset();
  last = {};
  leaving_.clear();
  events_ = 0;
}

}  // namespace lockstep::strategies
