// SPDX-License-Identifier: MIT
// The Recorder (engine/ops/recorder.h) of a replica on a GPU: its streams become part of one
// recording, those of all who record together become one graph of the driver's, and the first
// launches it on the stream of its kernels. The words of a step stay where `publish` puts them, so
// repetitions read new ones. Of numbers that are looked at (wrong ids and classes) the recording
// keeps copies, and after each repetition the host asks about them as if the kernels had just been
// queued. Owned by CudaOps, whose members it uses; lives as long.
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

  // A question that came while kernels are recorded; memory for it has been made before, since none
  // is taken then.
  void note(Question question);
  void make_room(const Question& question);
  bool keeps() const { return !kept_.empty(); }  // recordings, which use memory of these Ops
  void abandon() noexcept;                       // a recording that goes on

 private:
  struct Kept {
    std::vector<Question> questions;
    std::optional<GraphRun> graph;  // the first's
  };
  void behind_repetition(int number, const Event& launched);

  CudaOps& ops_;
  std::shared_ptr<Capture> capture_;     // that goes on
  bool began_ = false;                   // it, as the first
  int number_ = 0;                       // of it
  std::map<std::string, Buffer> rooms_;  // for copies of ids, by layer
  std::map<int, Kept> kept_;
  bool events_recorded_ = false;  // the events lie in a recording, where nobody can wait for them
  Event begun_, left_, ready_, launched_;
};

}  // namespace lockstep::engine::cuda
