// SPDX-License-Identifier: MIT
#include "engine/cuda/cuda_recorder.h"

#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {

engine::Recorder* CudaOps::recorder() {
  return recorder_.get();
}

CudaOps::Recorder::Recorder(CudaOps& ops)
    : ops_(ops),
      begun_(*ops.context_),
      left_(*ops.context_),
      ready_(*ops.context_),
      launched_(*ops.context_) {}

// Other threads may queue reductions, so the capture mode is "relaxed": the driver forbids no calls
// during the capture. lockstep refuses the calls that would break a capture.
void CudaOps::Recorder::begin(int number, engine::Recorder* first) {
  kept_.erase(number);
  number_ = number;
  CudaStream& stream = ops_.stream_;
  const auto* const theirs = static_cast<Recorder*>(first);
  capture_ = first == nullptr ? std::make_shared<Capture>() : theirs->capture_;
  stream.record_into(capture_.get());
  if (first == nullptr) {
    const Context& context = *ops_.context_;
    stream.queue([&] {
      context.use();
      context.check(
          context.driver().stream_begin_capture(stream.handle(), CU_STREAM_CAPTURE_MODE_RELAXED),
          "cuStreamBeginCapture");
      began_ = true;
    });
    stream.record(begun_);
  } else {
    stream.wait(theirs->begun_);
  }
  ops_.gradients_.stream.record_into(capture_.get());
  const std::scoped_lock lock(ops_.beside_.mutex);
  ops_.beside_.stream.record_into(capture_.get());
  ops_.beside_.stream.wait(first == nullptr ? begun_ : theirs->begun_);
  events_recorded_ = true;
}

void CudaOps::Recorder::leave() {
  ops_.join_apart();
  ops_.gradients_.stream.record_into(nullptr);
  ops_.go_behind_reductions();
  ops_.stream_.record(left_);
  kept_[number_];
  ops_.stream_.record_into(nullptr);
  const std::scoped_lock lock(ops_.beside_.mutex);
  ops_.beside_.stream.record_into(nullptr);
}

std::string CudaOps::Recorder::end(std::span<engine::Recorder* const> others) {
  const std::shared_ptr<Capture> capture = std::exchange(capture_, nullptr);
  CudaStream& stream = ops_.stream_;
  const Context& context = *ops_.context_;
  for (engine::Recorder* const other : others) {
    auto& theirs = static_cast<Recorder&>(*other);
    stream.record_into(capture.get());
    stream.wait(theirs.left_);
    stream.record_into(nullptr);
    theirs.capture_.reset();
  }
  CUgraph graph = nullptr;
  if (std::exchange(began_, false)) {
    context.use();
    const CUresult ended = context.driver().stream_end_capture(stream.handle(), &graph);
    capture->queue([&] { context.check(ended, "cuStreamEndCapture"); });
  }
  if (graph != nullptr && capture->failure().empty()) {
    capture->queue([&] { kept_[number_].graph.emplace(context, graph); });
  } else if (graph != nullptr) {
    context.driver().graph_destroy(graph);
  }
  const std::string failure = capture->failure();
  if (failure.empty()) return {};
  kept_.erase(number_);
  for (engine::Recorder* const other : others) static_cast<Recorder&>(*other).kept_.erase(number_);
  return failure;
}

void CudaOps::Recorder::abandon() noexcept {
  ops_.stream_.record_into(nullptr);
  ops_.gradients_.stream.record_into(nullptr);
  ops_.beside_.stream.record_into(nullptr);
  if (!std::exchange(began_, false)) return;
  CUgraph graph = nullptr;
  ops_.context_->driver().stream_end_capture(ops_.stream_.handle(), &graph);
  if (graph != nullptr) ops_.context_->driver().graph_destroy(graph);
}

// Makes room for copies of IDs, since later layers may overwrite them. Classes need none: they stay
// in the target until the next batch arrives.
void CudaOps::Recorder::make_room(const Question& question) {
  if (question.layer.empty()) return;
  const Tensor& numbers = question.numbers;
  Buffer& room = rooms_[question.layer];
  const std::size_t bytes = numbers.elements() * size_of(numbers.dtype);
  if (room.bytes() < bytes) room = ops_.memory_->allocate(bytes, "ids that are looked at");
}

void CudaOps::Recorder::note(Question question) {
  if (!question.layer.empty()) {
    Tensor& numbers = question.numbers;
    const std::size_t bytes = numbers.elements() * size_of(numbers.dtype);
    const Buffer& room = rooms_[question.layer];
    if (room.bytes() < bytes) return capture_->refuse("ids of a layer that had none before");
    ops_.stream_.copy(room.data(), numbers.data, bytes);
    numbers.data = room.data();
  }
  kept_[number_].questions.push_back(std::move(question));
}

// Marks the point before the launch, after the reductions that other threads have queued.
void CudaOps::Recorder::ready() {
  ops_.go_behind_reductions();
  ops_.stream_.record(ready_);
}

void CudaOps::Recorder::repeat(int number, std::span<engine::Recorder* const> others) {
  for (engine::Recorder* const other : others)
    ops_.stream_.wait(static_cast<Recorder&>(*other).ready_);
  kept_.at(number).graph->launch(ops_.stream_.handle());
  ops_.stream_.record(launched_);
  behind_repetition(number, launched_);
}

void CudaOps::Recorder::follow(int number, engine::Recorder& first) {
  const Event& launched = static_cast<Recorder&>(first).launched_;
  ops_.stream_.wait(launched);
  behind_repetition(number, launched);
}

void CudaOps::Recorder::behind_repetition(int number, const Event& launched) {
  {
    const std::scoped_lock lock(ops_.beside_.mutex);
    ops_.beside_.stream.wait(launched);
    if (std::exchange(events_recorded_, false)) {
      for (const Event& event : ops_.beside_.events) ops_.beside_.stream.record(event);
    }
  }
  for (const Question& question : kept_.at(number).questions) ops_.ask_now(question);
}

}  // namespace lockstep::engine::cuda
