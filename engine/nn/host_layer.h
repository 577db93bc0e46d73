// SPDX-License-Identifier: MIT
// A layer that touches its operands itself (Layer::on_device is false), on a device whose memory is
// not the host's: it runs on the host, on copies. To the graph it is that layer. It belongs to one
// graph, on its replica's computing thread, and owns the copies and the layer's workspace. Costs a
// wait for the device and the copies, twice per step. Errors are the layer's.
#pragma once
#include <memory>
#include <vector>

#include "engine/device/buffer.h"
#include "engine/nn/layer.h"

namespace lockstep::engine {

class HostLayer final : public Layer {
 public:
  // `host` has the host's kernels, of the graph's element type; they must outlive this.
  HostLayer(std::shared_ptr<const Layer> layer, Ops& host);

  std::string describe() const override { return layer_->describe(); }
  Shape output_shape(std::span<const Shape> inputs) const override {
    return layer_->output_shape(inputs);
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return layer_->parameters(inputs);
  }
  std::vector<ReductionSpec> reductions(std::span<const Shape> inputs) const override {
    return layer_->reductions(inputs);
  }
  std::vector<StatisticSpec> statistics(std::span<const Shape> inputs) const override {
    return layer_->statistics(inputs);
  }
  // Allocates the layer's workspace in host memory; it takes none on the device.
  std::size_t workspace(Ops&, std::span<const Shape> inputs, std::size_t rows) const override;
  bool backward_reads_output() const override { return layer_->backward_reads_output(); }
  bool backward_reads_input(std::size_t input) const override {
    return layer_->backward_reads_input(input);
  }
  bool on_device() const override { return true; }
  void forward(Context& context, const ForwardArguments& a) const override;
  void backward(Context& context, const BackwardArguments& a) const override;

 private:
  using Buffers = std::vector<Buffer>;
  // Belongs to one graph, so nobody else uses it.
  struct Copies {
    Buffers x, w, dx, dw;
    Buffer y, dy, workspace;
  };

  std::shared_ptr<const Layer> layer_;
  Ops& host_;
  std::unique_ptr<Copies> copies_;
};

}  // namespace lockstep::engine
