// SPDX-License-Identifier: MIT
// A cuDNN for tests, with the engines that a test provides. It builds engines by number and knobs
// and records which of them run. It computes graphs of convolutions in float32 from the strides and
// extents of their descriptors. Engines occupy the stream for as long as the test says; their
// results are available at once. Its functions are plain functions, like the real ones, so they
// find the fake by a thread-local pointer: one fake per thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/cuda/cudnn.h"
#include "engine/cuda/driver.h"

namespace lockstep::engine::cuda {

class FakeCudnn {
 public:
  struct Engine {
    int time = 1;  // pieces of work that it queues
    std::size_t workspace = 1;
    std::vector<cudnnBackendNumericalNote_t> notes{};
    bool builds = true, runs = true;
    std::map<int, std::int64_t> knobs{};
  };

  explicit FakeCudnn(const Driver& driver);
  ~FakeCudnn();
  FakeCudnn(const FakeCudnn&) = delete;
  FakeCudnn& operator=(const FakeCudnn&) = delete;

  Cudnn functions() const;
  std::size_t objects() const { return objects_.size(); }  // live, including handles

  static constexpr std::int64_t kLastResort = 100;  // number of the first one

  std::vector<Engine> engines;      // of heuristics mode A, best first, from 0
  std::vector<Engine> last_resort;  // of the fallback heuristics
  std::vector<const Engine*> ran;   // in order
  std::size_t questions = 0;        // heuristic queries

  // Holds a descriptor or a handle, with its attributes as they were set. It keeps descriptors
  // among them alive even if they are destroyed.
  struct Object {
    int type = 0;
    std::map<int, std::vector<std::byte>> attributes{};
    std::vector<std::shared_ptr<const Object>> held{};
    const Engine* engine = nullptr;
  };
  static FakeCudnn& current();
  Object* make(int type);
  void drop(const void* object);
  const Engine* engine(std::int64_t number) const;  // null: no such engine
  std::int64_t number(const Engine& engine) const;
  std::shared_ptr<const Object> find(const void* object) const;
  const Driver& driver() const { return *driver_; }
  cudaStream_t stream = nullptr;

 private:
  const Driver* driver_;
  std::map<const void*, std::shared_ptr<Object>> objects_;
};

}  // namespace lockstep::engine::cuda
