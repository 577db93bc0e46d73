// SPDX-License-Identifier: MIT
// A loss that touches its operands itself (Loss::on_device is false), on a device whose memory is
// not the host's: it is evaluated on the host, on copies. See host_layer.h.
#pragma once
#include <memory>

#include "engine/device/buffer.h"
#include "engine/nn/loss.h"

namespace lockstep::engine {

class HostLoss final : public Loss {
 public:
  HostLoss(std::shared_ptr<const Loss> loss, Ops& host);
  std::string describe() const override { return loss_->describe(); }
  std::size_t target_columns(const Shape& output) const override {
    return loss_->target_columns(output);
  }
  bool counts_correct() const override { return loss_->counts_correct(); }
  bool on_device() const override { return true; }
  void evaluate(Context& context, Tensor y, Tensor target, Tensor dy, Tensor losses,
                Tensor correct) const override;

 private:
  struct Copies {
    Buffer y, target, dy, losses, correct;
  };

  std::shared_ptr<const Loss> loss_;
  Ops& host_;
  std::unique_ptr<Copies> copies_;
};

}  // namespace lockstep::engine
