// SPDX-License-Identifier: MIT
// Runs some training steps of a model with weights and batches from files, for the comparison with
// another framework by steps.py. Uses SGD with momentum, one replica, and float32.
//
//   parity_steps --model mnist_cnn --weights W --batches B --out G --kernels direct
//
// W holds every parameter of the model under its name. B holds `images`, float32 [steps, rows,
// elements of an image], and `labels`, float32 [steps, rows]. The program writes the gradients of
// the first step to G, by name. It prints a JSON object with the mean loss of each step. All files
// are in safetensors format.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/device/buffer.h"
#include "engine/nn/graph.h"
#include "engine/nn/local_context.h"
#include "engine/runtime/devices.h"
#include "models/registry.h"
#include "tools/bench/program_flags.h"

namespace lockstep::parity {
namespace {

using engine::DType;
using engine::Shape;
using engine::Tensor;

struct Flags {
  std::string model = "mnist_cnn", kernels = "auto", weights, batches, out;
  float rate = 0.01F, momentum = 0.9F;
};

// Reads float32 tensors from a safetensors file.
class File {
 public:
  explicit File(const std::string& path)
      : storage_(engine::posix_storage()),
        path_(path),
        header_(engine::read_safetensors(*storage_, path)) {}
  std::size_t size() const { return header_.tensors.size(); }
  const Shape& shape(const std::string& name) const {
    const auto found = header_.tensors.find(name);
    engine::require(found != header_.tensors.end(), "{}: has no tensor '{}'", path_, name);
    engine::require(found->second.dtype == DType::kFloat32, "{}: '{}' is not float32", path_, name);
    return found->second.shape;
  }
  // Reads elements from `first` on.
  void read(const std::string& name, std::size_t first, std::span<float> to) const {
    const std::uint64_t begin = header_.tensors.find(name)->second.begin;
    storage_->read(path_, begin + first * sizeof(float), std::as_writable_bytes(to));
  }

 private:
  std::unique_ptr<engine::Storage> storage_;
  std::string path_;
  engine::Safetensors header_;
};

std::span<float> numbers(const Tensor& tensor) {
  return {tensor.as<float>(), tensor.elements()};
}

void read_weights(const Flags& f, const engine::Graph& graph) {
  const File file(f.weights);
  for (const engine::Parameter& parameter : graph.layout()) {
    const Shape& shape = file.shape(parameter.name);
    engine::require(shape == parameter.shape, "{}: '{}' is {}, and in {} it is {}", f.weights,
                    parameter.name, to_string(shape), f.model, to_string(parameter.shape));
    file.read(parameter.name, 0, numbers(graph.weight(parameter)));
  }
  engine::require(file.size() == graph.layout().size(), "{}: has {} tensors; {} has {} parameters",
                  f.weights, file.size(), f.model, graph.layout().size());
}

void write_gradients(const Flags& f, const engine::Graph& graph, const engine::Buffer& gradients) {
  std::vector<engine::TensorSource> tensors;
  for (const engine::Parameter& parameter : graph.layout()) {
    tensors.push_back({parameter.name, DType::kFloat32, parameter.shape,
                       gradients.data() + parameter.range.begin * sizeof(float)});
  }
  const auto storage = engine::posix_storage();
  const auto file = storage->create(f.out);
  engine::write_safetensors(*file, tensors, {});
  file->sync();
}

void run(const Flags& f) {
  const engine::GraphSpec spec = models::build(f.model);
  const File batches(f.batches);
  const Shape images = batches.shape("images"), labels = batches.shape("labels");
  engine::require(images.rank() == 3 && images[2] == spec.input_shape().elements() && images[0] > 0,
                  "{}: images are {}; wanted are [steps, rows, {}]", f.batches, to_string(images),
                  spec.input_shape().elements());
  const std::size_t steps = images[0], rows = images[1];
  engine::require(labels == Shape{steps, rows}, "{}: labels are {}; wanted are {}", f.batches,
                  to_string(labels), to_string(Shape{steps, rows}));
  const auto devices = engine::host_devices();
  const auto ops = engine::find(devices, {"cpu", 0})
                       .ops(DType::kFloat32, {.kernels = engine::kernels_of(f.kernels)});
  engine::Graph graph(spec, *ops, rows);
  engine::LocalContext context(*ops, graph);
  engine::Buffer weights(graph.parameters() * sizeof(float));
  engine::Buffer gradients(graph.trainable() * sizeof(float));
  graph.bind(weights.data(), gradients.data());
  read_weights(f, graph);
  engine::StepState state;
  context.state = &state;
  state.examples = std::int64_t(rows);
  state.inverse_examples = 1 / double(rows);
  state.ids = graph.ids();
  const std::span weight(reinterpret_cast<float*>(weights.data()), graph.trainable());
  const std::span gradient(reinterpret_cast<const float*>(gradients.data()), graph.trainable());
  std::vector<float> velocity(graph.trainable()), input(rows * images[2]);
  std::vector<double> losses;
  for (std::size_t step = 0; step < steps; ++step) {
    state.step = std::int64_t(step);
    batches.read("images", step * input.size(), input);
    ops->load(input.data(), graph.input());
    batches.read("labels", step * rows, numbers(graph.target()));
    graph.forward(context, {});
    graph.evaluate_loss(context, true);
    graph.backward(context, false, {});
    losses.push_back(ops->batch_sum(&state, graph.losses()) * state.inverse_examples);
    if (step == 0) write_gradients(f, graph, gradients);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      velocity[i] = f.momentum * velocity[i] + gradient[i];
      weight[i] -= f.rate * velocity[i];
    }
  }
  fmt::print("{}\n", nlohmann::json{{"losses", losses}}.dump());
}

}  // namespace
}  // namespace lockstep::parity

int main(int argc, char** argv) {
  using lockstep::tools::bench::ProgramFlags;
  lockstep::parity::Flags f;
  ProgramFlags flags("parity_steps", "Training steps from given weights with given batches.");
  flags.option("--model", f.model);
  flags.option("--kernels", f.kernels);
  flags.required("--weights", f.weights, "a safetensors file");
  flags.required("--batches", f.batches, "a safetensors file");
  flags.required("--out", f.out, "where the gradients go");
  flags.option("--rate", f.rate);
  flags.option("--momentum", f.momentum);
  return flags.run(argc, argv, [&] {
    lockstep::parity::run(f);
    return 0;
  });
}
