// SPDX-License-Identifier: MIT
// Captured streams of a fake GPU, and their graphs.
#include <algorithm>
#include <utility>

#include "test/engine/cuda/fake_driver.h"

namespace lockstep::engine::cuda {
namespace {

using Executable = std::shared_ptr<const FakeGraph>;

// Returns the graph or executable of a handle; null if there is none.
template <class T, class Handle>
T* find(const std::vector<std::unique_ptr<T>>& all, Handle handle) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& each) {
    return each.get() == reinterpret_cast<T*>(handle);
  });
  return found == all.end() ? nullptr : found->get();
}

template <class T, class Handle>
CUresult destroy(std::vector<std::unique_ptr<T>>& all, Handle handle) {
  const auto count = std::erase_if(
      all, [&](const auto& each) { return each.get() == reinterpret_cast<T*>(handle); });
  return count == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// Returns whether one graph can replace the other: it has the same kinds of nodes in the same
// order.
bool same_shape(const FakeGraph& a, const FakeGraph& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [](const FakeGraph::Node& x, const FakeGraph::Node& y) {
                      return x.kind == y.kind && x.after == y.after;
                    });
}

void fill_captures(Driver& driver) {
  driver.stream_begin_capture = [](CUstream handle, CUstreamCaptureMode mode) {
    return with_stream(handle, [&](FakeState& state, FakeStream* stream) {
      return result_of(state.queue.begin_capture(stream, mode));
    });
  };
  driver.stream_end_capture = [](CUstream handle, CUgraph* graph) {
    return with_stream(handle, [&](FakeState& state, FakeStream* stream) {
      *graph = nullptr;
      auto made = std::make_unique<FakeGraph>();
      const CUresult result = result_of(state.queue.end_capture(stream, *made));
      if (result != CUDA_SUCCESS) return result;
      *graph = reinterpret_cast<CUgraph>(made.get());
      state.graphs.push_back(std::move(made));
      return CUDA_SUCCESS;
    });
  };
  driver.stream_is_capturing = [](CUstream handle, CUstreamCaptureStatus* status) {
    return with_stream(handle, [&](FakeState&, const FakeStream* stream) {
      *status = !stream->capture          ? CU_STREAM_CAPTURE_STATUS_NONE
                : stream->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                          : CU_STREAM_CAPTURE_STATUS_ACTIVE;
      return CUDA_SUCCESS;
    });
  };
}

}  // namespace

void fill_graphs(Driver& driver) {
  fill_captures(driver);
  driver.graph_destroy = [](CUgraph handle) {
    return guarded([&](FakeState& state) { return destroy(state.graphs, handle); });
  };
  driver.graph_instantiate = [](CUgraphExec* made, CUgraph handle, unsigned long long) {
    return guarded([&](FakeState& state) {
      const FakeGraph* const graph = find(state.graphs, handle);
      if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      state.executables.push_back(
          std::make_unique<Executable>(std::make_shared<FakeGraph>(*graph)));
      *made = reinterpret_cast<CUgraphExec>(state.executables.back().get());
      return CUDA_SUCCESS;
    });
  };
  driver.graph_exec_update = [](CUgraphExec handle, CUgraph graph_handle,
                                CUgraphExecUpdateResultInfo* info) {
    return guarded([&](FakeState& state) {
      Executable* const executable = find(state.executables, handle);
      const FakeGraph* const graph = find(state.graphs, graph_handle);
      if (executable == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      *info = {};
      if (!same_shape(**executable, *graph)) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
      }
      // Earlier launches keep their nodes.
      *executable = std::make_shared<FakeGraph>(*graph);
      return CUDA_SUCCESS;
    });
  };
  driver.graph_launch = [](CUgraphExec handle, CUstream stream_handle) {
    return with_stream(stream_handle, [&](FakeState& state, FakeStream* stream) {
      const Executable* const executable = find(state.executables, handle);
      if (executable == nullptr) return CUDA_ERROR_INVALID_HANDLE;
      if (stream->capture) {
        stream->capture->broken = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      }
      state.options.on_launch();
      state.queue.launch(stream, *executable);
      return CUDA_SUCCESS;
    });
  };
  driver.graph_exec_destroy = [](CUgraphExec handle) {
    return guarded([&](FakeState& state) { return destroy(state.executables, handle); });
  };
}

}  // namespace lockstep::engine::cuda
