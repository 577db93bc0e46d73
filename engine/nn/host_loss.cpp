// SPDX-License-Identifier: MIT
#include "engine/nn/host_loss.h"

#include <utility>

#include "engine/nn/host_context.h"

namespace lockstep::engine {

HostLoss::HostLoss(std::shared_ptr<const Loss> loss, Ops& host)
    : loss_(std::move(loss)), host_(host), copies_(std::make_unique<Copies>()) {}

void HostLoss::evaluate(Context& context, Tensor y, Tensor target, Tensor dy, Tensor losses,
                        Tensor correct) const {
  HostContext here(context, host_, y.rows());
  Copies& copies = *copies_;
  const Tensor dy_here = HostContext::room(dy, copies.dy);
  const Tensor losses_here = HostContext::room(losses, copies.losses);
  const Tensor correct_here = HostContext::room(correct, copies.correct);
  loss_->evaluate(here, here.fetch(y, copies.y), here.fetch(target, copies.target), dy_here,
                  losses_here, correct_here);
  here.store(dy_here, dy);
  here.store(losses_here, losses);
  here.store(correct_here, correct);
}

}  // namespace lockstep::engine
