// SPDX-License-Identifier: MIT
#include "test/strategies/asynchronous_strategy.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "engine/ops/ops.h"

namespace lockstep::test {

using engine::Range;

struct AsynchronousStrategy::Worker : private engine::Context, public engine::Replica {
  Worker(int worker, const engine::GraphSpec& spec, engine::Ops& o, std::size_t rows)
      : Context(o), Replica(worker, spec, o, rows) {
    Replica::context = this;
    Context::state = &(Replica::state);
  }
  void record(engine::Timeline*) override {}  // no work in flight outside calls
  std::byte* exchange(int) override { return nullptr; }
  void reduce(int) override {
    engine::fail(engine::Code::kInvalid, "asynchronous workers cannot sum inside a layer");
  }
  std::unique_ptr<engine::Ops> own_ops;
  engine::Buffer weights, gradients;
  std::int64_t pulled = 0;
  bool has_pulled = false;
  engine::Totals last;
};

AsynchronousStrategy::AsynchronousStrategy(int workers, engine::Device& device)
    : device_(device), workers_count_(workers) {}
AsynchronousStrategy::~AsynchronousStrategy() = default;

engine::Membership AsynchronousStrategy::membership() const {
  return {0, workers_count_, workers_count_, true, 0};
}

void AsynchronousStrategy::open(const engine::GraphSpec& graph, const engine::UpdateRule& rule,
                                const engine::OpenOptions& options) {
  rule_ = rule;
  server_ops_ = device_.ops(device_.default_dtype(), {});
  width_ = engine::size_of(server_ops_->dtype());
  workers_.clear();
  for (int w = 0; w < workers_count_; ++w) {
    auto ops = device_.ops(device_.default_dtype(), {});
    workers_.push_back(std::make_unique<Worker>(w, graph, *ops, options.global_batch));
    workers_.back()->own_ops = std::move(ops);
  }
  const engine::Graph& first = workers_[0]->graph;
  engine::require(first.reductions().empty(),
                  "asynchronous: {} sums over replicas, which do not meet here; choose local "
                  "statistics",
                  first.reductions().empty() ? "" : first.reductions()[0].name);
  engine::require(rule.needs() == engine::Needs::kNothing,
                  "asynchronous: clipping needs all gradients at once");
  const std::size_t blocks =
      (first.parameters() + engine::kBlock - 1) / engine::kBlock * engine::kBlock;
  weights_ = engine::Buffer(blocks * width_);
  slots_ = engine::Buffer(blocks * width_ * std::max<std::size_t>(1, rule.slots()));
  first.initialise(options.seed, weights_.data());
  for (auto& w : workers_) {
    w->weights = engine::Buffer(blocks * width_);
    w->gradients = engine::Buffer(blocks * width_);
    w->graph.bind(w->weights.data(), w->gradients.data());
  }
  steps_of_worker.assign(std::size_t(workers_count_), 0);
  first_pulls_ = std::make_unique<std::barrier<>>(workers_count_);
}

void AsynchronousStrategy::assign(const engine::WorkSpec& work) {
  work_ = work;
  dealt_ = 0;
  position_ = work.position;
}

void AsynchronousStrategy::on_server(const std::function<void()>& work) {
  std::scoped_lock lock(server_);
  work();
}

void AsynchronousStrategy::run(const std::function<void(engine::Replica&)>& body) {
  std::exception_ptr first;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (auto& w : workers_) {
    threads.emplace_back([&, worker = w.get()] {
      try {
        body(*worker);
      } catch (...) {
        std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
      }
      if (!std::exchange(worker->has_pulled, true)) first_pulls_->arrive_and_drop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

std::optional<engine::Work> AsynchronousStrategy::next(engine::Replica& r) {
  std::scoped_lock lock(dealing_);
  if (dealt_ == work_.steps) return {};
  ++steps_of_worker[std::size_t(r.rank)];
  return engine::take_batch(work_, work_.first_step + dealt_++, position_);
}

void AsynchronousStrategy::before_forward(engine::Replica& r, Range range) {
  auto& w = static_cast<Worker&>(r);
  const bool of_a_step = range.end == r.graph.trainable();
  on_server([&] {
    if (of_a_step) w.pulled = version_;
    std::memcpy(w.weights.data() + range.begin * width_, weights_.data() + range.begin * width_,
                range.size() * width_);
  });
  if (of_a_step && !std::exchange(w.has_pulled, true)) first_pulls_->arrive_and_wait();
}

// Sends only the rows (here: blocks) whose gradients are not all zero.
void AsynchronousStrategy::gradient_ready(engine::Replica& r, Range range) {
  auto& w = static_cast<Worker&>(r);
  on_server([&] {
    for (std::size_t at = range.begin; at < range.end;) {
      const std::size_t end = std::min(range.end, (at / engine::kBlock + 1) * engine::kBlock);
      const std::byte* gradient = w.gradients.data() + at * width_;
      ++rows_seen;
      const bool changed = std::any_of(gradient, gradient + (end - at) * width_,
                                       [](std::byte b) { return b != std::byte{0}; });
      if (changed) {
        ++rows_pushed;
        std::byte* weight = weights_.data() + at * width_;
        engine::ReduceArguments a;
        a.dtype = server_ops_->dtype();
        a.from = {&gradient, 1};
        a.to = {&weight, 1};
        a.count = end - at;
        a.epilogue = engine::Epilogue::kUpdate;
        a.update.rule = &rule_;
        a.update.state = &r.state;
        a.update.weight = weight;
        a.update.slots[0] = slots_.data() + at * width_;
        server_ops_->reduce(a);
      }
      at = end;
    }
  });
}

void AsynchronousStrategy::finish(engine::Replica& r) {
  on_server([&] { staleness.push_back(double(version_++ - static_cast<Worker&>(r).pulled)); });
}

// Returns the worker's own sums, since workers do not synchronize.
engine::Totals AsynchronousStrategy::report(engine::Replica& r, std::int64_t,
                                            const engine::Totals& mine) {
  return std::exchange(static_cast<Worker&>(r).last, mine);
}
engine::Totals AsynchronousStrategy::synchronize(engine::Replica& r) {
  return static_cast<Worker&>(r).last;
}
std::vector<double> AsynchronousStrategy::gather(engine::Replica&, std::span<const double> mine,
                                                 std::string_view) {
  return {mine.begin(), mine.end()};
}
std::vector<engine::Piece> AsynchronousStrategy::pieces_to_save(engine::Replica&) {
  return {};
}
std::vector<engine::Piece> AsynchronousStrategy::pieces_to_restore(engine::Replica&) {
  return {};
}

}  // namespace lockstep::test
