// SPDX-License-Identifier: MIT
// A device and kernels that report each reduction to a listener before they execute it. All data
// that the executor moves inside a host goes through them. An exception of the listener becomes an
// error of the kernel.
#pragma once
#include <functional>
#include <memory>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::test {

using OnReduce = std::function<void(const engine::ReduceArguments&)>;  // called on any thread

std::unique_ptr<engine::Ops> observed(std::unique_ptr<engine::Ops> ops, OnReduce on_reduce);

class ObservedDevice : public engine::Device {
 public:
  ObservedDevice(std::unique_ptr<engine::Device> device, OnReduce on_reduce)
      : device_(std::move(device)), on_reduce_(std::move(on_reduce)) {}
  engine::DeviceId id() const override { return device_->id(); }
  std::string description() const override { return device_->description(); }
  std::string instructions() const override { return device_->instructions(); }
  std::string choices() const override { return device_->choices(); }
  void adopt_choices(const std::string& choices) override { device_->adopt_choices(choices); }
  engine::DType default_dtype() const override { return device_->default_dtype(); }
  bool supports(engine::DType dtype) const override { return device_->supports(dtype); }
  engine::Buffer allocate(std::size_t bytes) override { return device_->allocate(bytes); }
  std::unique_ptr<engine::Stream> stream() override { return device_->stream(); }
  std::unique_ptr<engine::Ops> ops(engine::DType dtype, engine::OpsOptions options) override {
    return observed(device_->ops(dtype, options), on_reduce_);
  }

 private:
  std::unique_ptr<engine::Device> device_;
  OnReduce on_reduce_;
};

}  // namespace lockstep::test
