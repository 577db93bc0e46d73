// SPDX-License-Identifier: MIT
// The streams, events and graphs of a fake GPU. Nothing runs when it is queued: work runs when
// somebody waits or asks, and then in an order that a GPU may take and a careless program does not
// expect: one stream is far ahead of the others, and which one is drawn by chance. Only events, and
// the order within a stream, hold. One thread at a time.
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

// Work as nodes, each after some of those before it in the list.
struct FakeGraph {
  struct Node {
    std::string kind;  // "copy", or a kernel's name
    std::function<void()> run;
    std::vector<std::size_t> after;
  };
  std::vector<Node> nodes;
};

// Streams that are recorded together; the origin is the one that began.
struct FakeStream;
struct FakeCapture {
  FakeGraph graph;
  FakeStream* origin = nullptr;
  int mode = 0;  // CUstreamCaptureMode
  std::thread::id thread;
  bool broken = false;  // by a call that is not allowed while it goes on
};

struct FakeEvent {
  int gpu = 0, process = 0;
  bool timed = false;
  bool shared = false, destroyed = false;  // with other processes; by its own
  std::shared_ptr<FakeEvent> of;           // of another process, which is open here
  std::uint64_t recorded = 0, done = 0;    // how often
  std::uint64_t pushed = 0;                // pieces of work, when it was last recorded
  std::uint64_t time = 0;                  // when last, in pieces of work
  std::shared_ptr<FakeCapture> capture;    // that it was recorded in
  std::vector<std::size_t> nodes;          // and after what
};

// A piece of work: a graph (of one node, mostly), a mark, or a wait.
struct FakeWork {
  std::shared_ptr<const FakeGraph> graph;
  std::vector<bool> ran;  // which nodes
  std::shared_ptr<FakeEvent> record, wait;
  std::uint64_t count = 0;  // of the event's records, that is marked or waited for
};

struct FakeStream {
  int gpu = 0, process = 0;
  std::deque<FakeWork> works;
  std::shared_ptr<FakeCapture> capture;
  std::vector<std::size_t> last;  // what the next node of the capture comes after
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
  FakeStream* make_default_stream(int gpu);  // known to nobody
  void drop(FakeStream* stream);             // its work goes on
  bool knows(const FakeStream* stream) const;
  std::size_t streams() const;

  void push(FakeStream* stream, std::string kind, std::function<void()> run);
  void launch(FakeStream* stream, std::shared_ptr<const FakeGraph> graph);
  void record(const std::shared_ptr<FakeEvent>& event, FakeStream* stream);
  FakeAnswer wait(FakeStream* stream, const std::shared_ptr<FakeEvent>& event);

  // Asking runs a few pieces of work, of any stream.
  FakeAnswer query(FakeStream* stream);
  FakeAnswer query(const FakeEvent& event);
  FakeAnswer finish(FakeStream* stream);
  FakeAnswer finish(const FakeEvent& event);
  FakeAnswer finish_all(int gpu, int process);  // of one process there
  void stick() { stuck_ = true; }               // from now on nothing runs

  FakeAnswer begin_capture(FakeStream* stream, int mode);
  FakeAnswer end_capture(FakeStream* stream, FakeGraph& graph);
  // Of captures that forbid this thread's unsafe calls: they are broken by one.
  bool break_captures();

 private:
  bool step();  // false where nothing can run
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
