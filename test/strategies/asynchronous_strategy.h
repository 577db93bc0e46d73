// SPDX-License-Identifier: MIT
// A minimal asynchronous parameter server inside one process. Workers are threads that pull and
// push under the lock of the weights. It shows that the port and the loop support a strategy that
// shares nothing with the synchronous ones: work is assigned dynamically, pulls are stale, pushes
// hold only the rows that changed, and workers do not synchronize after their first pulls. All
// first pulls precede the first push, so some pushes are stale however the system schedules the
// threads.
#pragma once
#include <barrier>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/device/device.h"
#include "engine/train/strategy.h"

namespace lockstep::test {

class AsynchronousStrategy : public engine::Strategy {
 public:
  AsynchronousStrategy(int workers, engine::Device& device);
  ~AsynchronousStrategy() override;
  std::string name() const override { return "asynchronous"; }
  engine::Membership membership() const override;
  void open(const engine::GraphSpec&, const engine::UpdateRule&,
            const engine::OpenOptions&) override;
  void run_collectively(const std::function<void()>& body, std::string_view) override { body(); }
  void assign(const engine::WorkSpec&) override;
  void run(const std::function<void(engine::Replica&)>&) override;
  std::optional<engine::Work> next(engine::Replica&) override;
  void before_forward(engine::Replica&, engine::Range) override;
  void gradient_ready(engine::Replica&, engine::Range) override;
  void finish(engine::Replica&) override;
  engine::Totals report(engine::Replica&, std::int64_t, const engine::Totals& mine) override;
  engine::Totals synchronize(engine::Replica&) override;
  std::vector<double> gather(engine::Replica&, std::span<const double> mine,
                             std::string_view what) override;
  std::vector<std::string> collect(const std::string& mine, std::string_view) override {
    return {mine};
  }
  std::vector<engine::Piece> pieces_to_save(engine::Replica&) override;
  std::vector<engine::Piece> pieces_to_restore(engine::Replica&) override;
  std::string plan() const override { return {}; }
  std::string explain() const override { return "asynchronous: one server"; }
  std::string placement() const override { return "every variable: on the server"; }
  std::string algorithm() const override { return "parameter_server"; }
  std::string reason() const override { return "it was asked for"; }
  double waited_seconds(engine::Replica&) const override { return 0; }
  void abort(const engine::Error&) noexcept override {}

  std::vector<double> staleness;  // staleness of every push, in order
  std::vector<int> steps_of_worker;
  std::size_t rows_pushed = 0, rows_seen = 0;  // blocks of kBlock elements

 private:
  struct Worker;
  void on_server(const std::function<void()>& work);
  engine::Device& device_;
  int workers_count_;
  engine::UpdateRule rule_;
  engine::WorkSpec work_;
  std::unique_ptr<engine::Ops> server_ops_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::unique_ptr<std::barrier<>> first_pulls_;
  std::mutex dealing_, server_;  // server_ guards the weights
  std::int64_t dealt_ = 0;
  engine::DataPosition position_;
  engine::Buffer weights_, slots_;
  std::size_t width_ = 8;
  std::int64_t version_ = 0;
};

}  // namespace lockstep::test
