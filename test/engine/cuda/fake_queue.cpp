// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_queue.h"

#include <cuda.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep::engine::cuda {
namespace {

FakeWork work_of(std::shared_ptr<const FakeGraph> graph) {
  FakeWork work;
  work.ran.resize(graph->nodes.size());
  work.graph = std::move(graph);
  return work;
}

}  // namespace

FakeStream* FakeQueue::make_stream(int gpu) {
  streams_.push_back(std::make_unique<FakeStream>());
  streams_.back()->gpu = gpu;
  return streams_.back().get();
}

FakeStream* FakeQueue::make_default_stream(int gpu) {
  defaults_.push_back(std::make_unique<FakeStream>());
  defaults_.back()->gpu = gpu;
  return defaults_.back().get();
}

void FakeQueue::drop(FakeStream* stream) {
  const auto found = std::find_if(streams_.begin(), streams_.end(),
                                  [&](const auto& s) { return s.get() == stream; });
  dropped_.push_back(std::move(*found));
  streams_.erase(found);
}

bool FakeQueue::knows(const FakeStream* stream) const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [&](const auto& s) { return s.get() == stream; });
}

std::size_t FakeQueue::streams() const {
  return streams_.size();
}

void FakeQueue::push(FakeStream* stream, std::string kind, std::function<void()> run) {
  if (stream->capture) {
    std::vector<FakeGraph::Node>& nodes = stream->capture->graph.nodes;
    nodes.push_back({std::move(kind), std::move(run), stream->last});
    stream->last = {nodes.size() - 1};
    return;
  }
  auto graph = std::make_shared<FakeGraph>();
  graph->nodes.push_back({std::move(kind), std::move(run), {}});
  ++pushed_;
  stream->works.push_back(work_of(std::move(graph)));
}

void FakeQueue::launch(FakeStream* stream, std::shared_ptr<const FakeGraph> graph) {
  ++pushed_;
  stream->works.push_back(work_of(std::move(graph)));
}

void FakeQueue::record(const std::shared_ptr<FakeEvent>& event, FakeStream* stream) {
  event->capture = stream->capture;
  event->nodes = stream->last;
  if (stream->capture) return;
  FakeWork work;
  work.record = event;
  work.count = ++event->recorded;
  event->pushed = pushed_;
  stream->works.push_back(std::move(work));
}

FakeAnswer FakeQueue::wait(FakeStream* stream, const std::shared_ptr<FakeEvent>& event) {
  if (event->capture) {
    const bool goes_on =
        std::find(captures_.begin(), captures_.end(), event->capture) != captures_.end();
    if (!goes_on) return FakeAnswer::kCaptured;
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->last = event->nodes;
      return FakeAnswer::kDone;
    }
    if (stream->capture != event->capture) return FakeAnswer::kMerge;
    stream->last.insert(stream->last.end(), event->nodes.begin(), event->nodes.end());
    return FakeAnswer::kDone;
  }
  if (stream->capture) {
    stream->capture->broken = true;
    return FakeAnswer::kIsolation;
  }
  // The stream waits for the work recorded so far; later records do not count.
  FakeWork work;
  work.wait = event;
  work.count = event->recorded;
  stream->works.push_back(std::move(work));
  return FakeAnswer::kDone;
}

FakeAnswer FakeQueue::query(FakeStream* stream) {
  if (stream->capture) {
    stream->capture->broken = true;
    return FakeAnswer::kCaptured;
  }
  if (!stream->works.empty()) on_starved_();
  for (std::uint64_t i = 0; i <= random_() % 4 && !stream->works.empty(); ++i) step();
  return stream->works.empty() ? FakeAnswer::kDone : FakeAnswer::kNotReady;
}

FakeAnswer FakeQueue::query(const FakeEvent& event) {
  if (event.capture) return FakeAnswer::kCaptured;
  if (event.done < event.recorded && event.pushed == pushed_) on_starved_();
  for (std::uint64_t i = 0; i <= random_() % 4 && event.done < event.recorded; ++i) step();
  return event.done == event.recorded ? FakeAnswer::kDone : FakeAnswer::kNotReady;
}

FakeAnswer FakeQueue::finish(FakeStream* stream) {
  if (stream->capture) {
    stream->capture->broken = true;
    return FakeAnswer::kCaptured;
  }
  return until([&] { return stream->works.empty(); });
}

FakeAnswer FakeQueue::finish(const FakeEvent& event) {
  if (event.capture) return FakeAnswer::kCaptured;
  return until([&] { return event.done == event.recorded; });
}

FakeAnswer FakeQueue::finish_all(int gpu, int process) {
  return until([&] {
    const auto idle = [&](const auto& s) {
      return s->gpu != gpu || s->process != process || s->works.empty();
    };
    return std::all_of(streams_.begin(), streams_.end(), idle) &&
           std::all_of(defaults_.begin(), defaults_.end(), idle) &&
           std::all_of(dropped_.begin(), dropped_.end(), idle);
  });
}

FakeAnswer FakeQueue::begin_capture(FakeStream* stream, int mode) {
  if (stream->capture) return FakeAnswer::kBroken;
  auto capture = std::make_shared<FakeCapture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  stream->capture = capture;
  stream->last.clear();
  captures_.push_back(std::move(capture));
  return FakeAnswer::kDone;
}

// All captured work, in every stream, must precede the end of the origin stream.
FakeAnswer FakeQueue::end_capture(FakeStream* stream, FakeGraph& graph) {
  const std::shared_ptr<FakeCapture> capture = stream->capture;
  if (!capture || capture->origin != stream) return FakeAnswer::kBroken;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      capture->thread != std::this_thread::get_id()) {
    return FakeAnswer::kBroken;
  }
  std::set<std::size_t> before(stream->last.begin(), stream->last.end());
  for (std::size_t node = capture->graph.nodes.size(); node-- > 0;) {
    const std::vector<std::size_t>& after = capture->graph.nodes[node].after;
    if (before.contains(node)) before.insert(after.begin(), after.end());
  }
  for (const std::unique_ptr<FakeStream>& each : streams_) {
    if (each->capture == capture) {
      each->capture.reset();
      each->last.clear();
    }
  }
  std::erase(captures_, capture);
  if (capture->broken) return FakeAnswer::kBroken;
  if (before.size() != capture->graph.nodes.size()) return FakeAnswer::kUnjoined;
  graph = std::move(capture->graph);
  return FakeAnswer::kDone;
}

bool FakeQueue::break_captures() {
  bool any = false;
  for (const std::shared_ptr<FakeCapture>& capture : captures_) {
    const bool own = capture->thread == std::this_thread::get_id();
    if (capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL ||
        (own && capture->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)) {
      capture->broken = true;
      any = true;
    }
  }
  return any;
}

FakeAnswer FakeQueue::until(const std::function<bool()>& done) {
  while (!done()) {
    if (!step()) return FakeAnswer::kStuck;
  }
  return FakeAnswer::kDone;
}

bool FakeQueue::can_run(const FakeStream& stream) const {
  if (stream.works.empty()) return false;
  const FakeWork& work = stream.works.front();
  return work.wait == nullptr || work.wait->done >= work.count;
}

// The favorite runs as long as it can, so that others fall far behind; then another one is drawn.
bool FakeQueue::step() {
  if (stuck_) return false;
  std::vector<FakeStream*> ready;
  for (const auto* list : {&streams_, &defaults_, &dropped_}) {
    for (const auto& stream : *list) {
      if (can_run(*stream)) ready.push_back(stream.get());
    }
  }
  if (ready.empty()) return false;
  const bool stays = std::find(ready.begin(), ready.end(), favourite_) != ready.end();
  if (!stays || random_() % 8 == 0) favourite_ = ready[random_() % ready.size()];
  run(*favourite_);
  std::erase_if(dropped_, [](const auto& stream) { return stream->works.empty(); });
  return true;
}

void FakeQueue::run(FakeStream& stream) {
  ++time_;
  FakeWork& work = stream.works.front();
  if (work.record) {
    work.record->done = std::max(work.record->done, work.count);
    work.record->time = time_;
  }
  if (work.graph) {
    const std::vector<FakeGraph::Node>& nodes = work.graph->nodes;
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const bool after_all = std::all_of(nodes[i].after.begin(), nodes[i].after.end(),
                                         [&](std::size_t before) { return work.ran[before]; });
      if (!work.ran[i] && after_all) ready.push_back(i);
    }
    if (!ready.empty()) {
      const std::size_t node = ready[random_() % ready.size()];
      nodes[node].run();
      work.ran[node] = true;
    }
    if (std::find(work.ran.begin(), work.ran.end(), false) != work.ran.end()) return;
  }
  stream.works.pop_front();
}

}  // namespace lockstep::engine::cuda
