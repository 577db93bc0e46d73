// SPDX-License-Identifier: MIT
// The streams, events, and graphs of a fake GPU. Queued work runs only when the host waits or
// queries. The order is one that a GPU may take but a careless program does not expect: one
// randomly drawn stream runs far ahead. Only events and the order within a stream are guaranteed.
// Not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::engine::cuda {

// Holds work as nodes; each runs after some earlier nodes of the list.
struct FakeGraph {
  struct Node {
    std::string kind;  // "copy", or a kernel's name
    std::function<void()> run;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
};

// Describes streams that are captured together; capture began in `origin`.
struct FakeStream;
struct FakeCapture {
  FakeGraph graph;
  FakeStream* origin = nullptr;
  int mode = 0;  // CUstreamCaptureMode
  std::thread::id thread;
  bool broken = false;  // by a call not allowed during capture
};

struct FakeEvent {
  int gpu = 0, process = 0;
  bool timed = false;
  bool shared = false, destroyed = false;  // with other processes; by its own process
  std::shared_ptr<FakeEvent> of;           // the original, of another process
  std::uint64_t recorded = 0, done = 0;    // how often
  std::uint64_t pushed = 0;                // pieces of work at the last record
  std::uint64_t time = 0;                  // of the last completion, in pieces of work
  std::shared_ptr<FakeCapture> capture;    // in which it was recorded
  std::vector<std::size_t> nodes;          // that precede it in the capture
};

// Represents a piece of work: a graph (mostly of one node), a record of an event, or a wait.
struct FakeWork {
  std::shared_ptr<const FakeGraph> graph;
  std::vector<bool> ran;  // by node
  std::shared_ptr<FakeEvent> record, wait;
  std::uint64_t count = 0;  // of the event's records
};

struct FakeStream {
  int gpu = 0, process = 0;
  std::deque<FakeWork> works;
  std::shared_ptr<FakeCapture> capture;
  std::vector<std::size_t> last;  // predecessors of the next captured node
};

enum class FakeAnswer {
  kDone,
  kNotReady,
  kStuck,
  kCaptured,
  kIsolation,
  kMerge,
  kUnjoined,
  kBroken
};

class FakeQueue {
 public:
  // `on_starved`: see FakeGpuOptions.
  FakeQueue(std::uint64_t seed, std::function<void()> on_starved)
      : random_(seed), on_starved_(std::move(on_starved)) {}

  FakeStream* make_stream(int gpu);
  FakeStream* make_default_stream(int gpu);  // has no handle
  void drop(FakeStream* stream);             // its work continues
  bool knows(const FakeStream* stream) const;
  std::size_t streams() const;

  void push(FakeStream* stream, std::string kind, std::function<void()> run);
  void launch(FakeStream* stream, std::shared_ptr<const FakeGraph> graph);
  void record(const std::shared_ptr<FakeEvent>& event, FakeStream* stream);
  FakeAnswer wait(FakeStream* stream, const std::shared_ptr<FakeEvent>& event);

  // Queries run a few pieces of work of any stream.
  FakeAnswer query(FakeStream* stream);
  FakeAnswer query(const FakeEvent& event);
  FakeAnswer finish(FakeStream* stream);
  FakeAnswer finish(const FakeEvent& event);
  FakeAnswer finish_all(int gpu, int process);  // of one process on the GPU
  void stick() { stuck_ = true; }               // nothing runs after this

  FakeAnswer begin_capture(FakeStream* stream, int mode);
  FakeAnswer end_capture(FakeStream* stream, FakeGraph& graph);
  // Invalidates the captures that forbid this thread's unsafe calls. Returns whether there were
  // any.
  bool break_captures();

 private:
  bool step();  // false if nothing can run
  FakeAnswer until(const std::function<bool()>& done);
  bool can_run(const FakeStream& stream) const;
  void run(FakeStream& stream);

  std::mt19937_64 random_;
  std::vector<std::unique_ptr<FakeStream>> streams_, defaults_, dropped_;
  std::vector<std::shared_ptr<FakeCapture>> captures_;
  FakeStream* favourite_ = nullptr;
  std::function<void()> on_starved_;
  std::uint64_t time_ = 0, pushed_ = 0;
  bool stuck_ = false;
};

}  // namespace lockstep::engine::cuda
