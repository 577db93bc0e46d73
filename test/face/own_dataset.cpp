// SPDX-License-Identifier: MIT
// A complete program with a user-defined dataset: a table in memory, and a model that learns it on
// two replicas. data/dataset.h documents each function.
#include <lockstep/lockstep.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using Row = std::array<float, 3>;  // x, y, class

// Implements a dataset from table rows: two columns, and the class in the last one.
class Table final : public lockstep::Dataset {
 public:
  explicit Table(std::vector<Row> rows) : rows_(std::move(rows)) {
    // The fingerprint is FNV-1a over all numbers; it detects a checkpoint of another table.
    for (const Row& row : rows_) {
      for (const float number : row) {
        fingerprint_ = (fingerprint_ ^ std::bit_cast<std::uint32_t>(number)) * 0x100000001b3U;
      }
    }
  }
  std::uint64_t size() const override { return rows_.size(); }
  lockstep::Shape input_shape() const override { return {2}; }
  std::size_t target_columns() const override { return 1; }  // a class
  std::size_t classes() const override { return 3; }
  // Called by several threads at once: it only reads.
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    const Row& row = rows_[index];
    std::copy_n(row.begin(), 2, input.begin());
    target[0] = row[2];
  }
  std::string describe() const override {
    return fmt::format("table of {} rows, 2 columns, 3 classes", rows_.size());
  }
  std::uint64_t fingerprint() const override { return fingerprint_; }

 private:
  std::vector<Row> rows_;
  std::uint64_t fingerprint_ = 0xcbf29ce484222325U;
};

// Returns three arms of a spiral, which are not linearly separable. `shift` in [0, 1) moves every
// point along its arm, so test points lie between training points.
Table spiral(std::size_t points, double shift) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < points; ++i) {
    const std::size_t arm = i % 3;
    const double along = (double(i) + shift * 3) / double(points + 3);
    const double angle = 4 * along + 2.0944 * double(arm);
    rows.push_back({float(along * std::cos(angle)), float(along * std::sin(angle)), float(arm)});
  }
  return Table(std::move(rows));
}

}  // namespace

int main(int argc, char** argv) try {
  const Table train = spiral(600, 0), test = spiral(150, 0.5);

  lockstep::GraphSpec graph("spiral_mlp", train.input_shape());
  graph.then("dense1", lockstep::dense(32));
  graph.then("tanh1", lockstep::tanh());
  graph.then("dense2", lockstep::dense(32));
  graph.then("tanh2", lockstep::tanh());
  graph.then("dense3", lockstep::dense(3));
  graph.set_loss(lockstep::softmax_cross_entropy());

  lockstep::Session session(argc, argv);
  auto strategy = lockstep::mirrored(session, {.replicas = 2, .threads = 1});
  lockstep::Trainer trainer(strategy, graph, lockstep::optim::adam({.rate = 0.01}));
  const auto report = [](const lockstep::EpochReport& epoch) {
    if (epoch.number % 10 == 0) fmt::print("epoch {}: loss {:.4f}\n", epoch.number, epoch.loss);
  };
  trainer.fit(train, {.epochs = 30, .global_batch = 40, .on_epoch = report});
  const double accuracy = trainer.evaluate(test).accuracy;
  fmt::print("{}: accuracy {:.4f}\n", train.describe(), accuracy);
  return accuracy > 0.85 ? 0 : 1;  // without hidden layers: about 0.55
} catch (const lockstep::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
