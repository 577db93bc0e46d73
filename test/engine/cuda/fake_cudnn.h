// SPDX-License-Identifier: MIT
// A cuDNN for tests: it has the engines that a test gives it, builds those that are asked for by
// their number and knobs, notes which of them run, and computes graphs of convolutions in float32,
// by the strides and numbers that their descriptors say. Engines take as much time of the stream as
// the test says; what they compute is there at once. Its functions are plain functions, as the real
// ones are, so they find the fake by a pointer of the thread: one fake a thread at a time.
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
  std::size_t objects() const { return objects_.size(); }  // that are there, handles included

  static constexpr std::int64_t kLastResort = 100;  // the number of the first of them

  std::vector<Engine> engines;      // of the heuristics' mode A, best first; numbered from 0
  std::vector<Engine> last_resort;  // of their fallback
  std::vector<const Engine*> ran;   // in their order
  std::size_t questions = 0;        // heuristics that were asked

  // For its functions. An object is a descriptor or a handle; attributes are as they were given.
  // Descriptors among them stay as long as the object does, whoever destroys them.
  struct Object {
    int type = 0;
    std::map<int, std::vector<std::byte>> attributes{};
    std::vector<std::shared_ptr<const Object>> held{};
    const Engine* engine = nullptr;
  };
  static FakeCudnn& current();
  Object* make(int type);
  void drop(const void* object);
  const Engine* engine(std::int64_t number) const;  // null: there is none
  std::int64_t number(const Engine& engine) const;
  std::shared_ptr<const Object> find(const void* object) const;
  const Driver& driver() const { return *driver_; }
  cudaStream_t stream = nullptr;

 private:
  const Driver* driver_;
  std::map<const void*, std::shared_ptr<Object>> objects_;
};

}  // namespace lockstep::engine::cuda
