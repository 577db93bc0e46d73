// SPDX-License-Identifier: MIT
#include "engine/nn/host_layer.h"

#include <utility>

#include "engine/nn/host_context.h"

namespace lockstep::engine {
namespace {

// Maps each tensor by `of`, in a buffer of its own.
template <class Of>
std::vector<Tensor> each(std::span<const Tensor> tensors, std::vector<Buffer>& buffers, Of of) {
  buffers.resize(tensors.size());
  std::vector<Tensor> made;
  for (std::size_t i = 0; i < tensors.size(); ++i) made.push_back(of(tensors[i], buffers[i], i));
  return made;
}

}  // namespace

HostLayer::HostLayer(std::shared_ptr<const Layer> layer, Ops& host)
    : layer_(std::move(layer)), host_(host), copies_(std::make_unique<Copies>()) {}

std::size_t HostLayer::workspace(Ops&, std::span<const Shape> inputs, std::size_t rows) const {
  const std::size_t bytes = layer_->workspace(host_, inputs, rows);
  if (copies_->workspace.bytes() < bytes) copies_->workspace = Buffer(bytes);
  return 0;
}

void HostLayer::forward(Context& context, const ForwardArguments& a) const {
  HostContext here(context, host_, a.rows);
  const auto fetch = [&](const Tensor& from, Buffer& buffer, std::size_t) {
    return here.fetch(from, buffer);
  };
  const std::vector<Tensor> x = each(a.x, copies_->x, fetch), w = each(a.w, copies_->w, fetch);
  ForwardArguments mine = a;
  mine.x = x;
  mine.w = w;
  mine.y = HostContext::room(a.y, copies_->y);
  mine.workspace = copies_->workspace.data();
  layer_->forward(here, mine);
  here.store(mine.y, a.y);
}

// Fetches from the device first the gradients that are added to.
void HostLayer::backward(Context& context, const BackwardArguments& a) const {
  HostContext here(context, host_, a.rows);
  const auto fetch = [&](const Tensor& from, Buffer& buffer, std::size_t) {
    return here.fetch(from, buffer);
  };
  const auto room = [&](const Tensor& like, Buffer& buffer, std::size_t) {
    return HostContext::room(like, buffer);
  };
  const std::vector<Tensor> x =
      each(a.x, copies_->x, [&](const Tensor& from, Buffer& buffer, std::size_t i) {
        return layer_->backward_reads_input(i) ? here.fetch(from, buffer)
                                               : HostContext::room(from, buffer);
      });
  const std::vector<Tensor> w = each(a.w, copies_->w, fetch), dx = each(a.dx, copies_->dx, room);
  const std::vector<Tensor> dw =
      a.accumulate ? each(a.dw, copies_->dw, fetch) : each(a.dw, copies_->dw, room);
  BackwardArguments mine = a;
  mine.x = x;
  mine.w = w;
  mine.dx = dx;
  mine.dw = dw;
  mine.y = layer_->backward_reads_output() ? here.fetch(a.y, copies_->y)
                                           : HostContext::room(a.y, copies_->y);
  mine.dy = here.fetch(a.dy, copies_->dy);
  mine.workspace = copies_->workspace.data();
  layer_->backward(here, mine);
  for (std::size_t i = 0; i < dx.size(); ++i) here.store(dx[i], a.dx[i]);
  for (std::size_t i = 0; i < dw.size(); ++i) here.store(dw[i], a.dw[i]);
}

}  // namespace lockstep::engine
