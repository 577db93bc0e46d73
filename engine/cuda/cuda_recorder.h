// SPDX-License-Identifier: MIT
// The Recorder (engine/ops/recorder.h) of a replica on a GPU. The streams of all replicas that
// capture together become one CUDA graph, which the first replica launches on its kernel stream.
// The step state stays where `publish` writes it, so each launch reads the new one. For numbers to
// check (IDs and classes) the capture keeps copies. After each launch the host asks about them as
// if the kernels had just been queued. Owned by CudaOps, whose members it uses.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/capture.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/ops/recorder.h"

namespace lockstep::engine::cuda {

class CudaOps::Recorder final : public engine::Recorder {
 public:
  explicit Recorder(CudaOps& ops);

  void begin(int number, engine::Recorder* first) override;
  void leave() override;
  std::string end(std::span<engine::Recorder* const> others) override;
  void ready() override;
  void repeat(int number, std::span<engine::Recorder* const> others) override;
  void follow(int number, engine::Recorder& first) override;

  // Stores a question during a capture. `make_room` must have allocated its memory before, since a
  // capture allocates none.
  void note(Question question);
  void make_room(const Question& question);
  bool keeps() const { return !kept_.empty(); }  // graphs that use memory of these Ops
  void abandon() noexcept;                       // ends a capture in progress

 private:
  struct Kept {
    std::vector<Question> questions;
    std::optional<GraphRun> graph;  // set in the first replica only
  };
  void behind_repetition(int number, const Event& launched);

  CudaOps& ops_;
  std::shared_ptr<Capture> capture_;     // the one in progress
  bool began_ = false;                   // whether this replica began it
  int number_ = 0;                       // its number
  std::map<std::string, Buffer> rooms_;  // for copies of IDs, by layer
  std::map<int, Kept> kept_;
  // True if the events were recorded in a capture, where the host cannot wait for them.
  bool events_recorded_ = false;
  Event begun_, left_, ready_, launched_;
};

}  // namespace lockstep::engine::cuda
