// SPDX-License-Identifier: MIT
// Streams, events, and kernels of a fake GPU.
#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/cuda/emulator.h"
#include "test/engine/cuda/fake_driver.h"
#include "test/engine/cuda/fake_fence.h"

namespace lockstep::engine::cuda {
namespace {

// Returns the original of an opened event, which must not be used after it was destroyed.
std::shared_ptr<FakeEvent> itself(const std::shared_ptr<FakeEvent>& event) {
  if (!event->of) return event;
  invariant(!event->of->destroyed, "an event is touched that another process has destroyed");
  return event->of;
}

using EventCall = std::function<CUresult(FakeState&, const std::shared_ptr<FakeEvent>&)>;
CUresult with_event(CUevent handle, const EventCall& call) {
  return guarded([&](FakeState& state) {
    const std::shared_ptr<FakeEvent> event = event_of(state, handle);
    return event == nullptr ? CUDA_ERROR_INVALID_HANDLE : call(state, event);
  });
}

CUresult answer_about(FakeState& state, const FakeEvent& event, bool wait) {
  if (state.queue.break_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const FakeAnswer answer = wait ? state.queue.finish(event) : state.queue.query(event);
  return answer == FakeAnswer::kCaptured ? CUDA_ERROR_CAPTURED_EVENT : result_of(answer);
}

void fill_events(Driver& driver) {
  driver.event_create = [](CUevent* handle, unsigned flags) {
    return in_context([&](FakeState& state, const FakeContext& context) {
      const bool timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
      const bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
      if (timed && shared) return CUDA_ERROR_INVALID_VALUE;
      state.events.push_back(std::make_shared<FakeEvent>());
      FakeEvent& event = *state.events.back();
      event.gpu = context.gpu, event.process = context.process;
      event.timed = timed, event.shared = shared;
      *handle = reinterpret_cast<CUevent>(state.events.back().get());
      return CUDA_SUCCESS;
    });
  };
  driver.event_destroy = [](CUevent handle) {
    return with_event(handle, [](FakeState& state, const std::shared_ptr<FakeEvent>& event) {
      itself(event);
      event->destroyed = true;
      std::erase(state.events, event);
      return CUDA_SUCCESS;
    });
  };
  driver.event_record = [](CUevent handle, CUstream stream_handle) {
    return with_event(handle, [&](FakeState& state, const std::shared_ptr<FakeEvent>& event) {
      auto* const stream = reinterpret_cast<FakeStream*>(stream_handle);
      if (!state.queue.knows(stream)) return CUDA_ERROR_INVALID_HANDLE;
      // Other GPUs and processes may wait for an event, but only its owner records it.
      if (stream->gpu != event->gpu || stream->process != event->process || event->of)
        return CUDA_ERROR_INVALID_HANDLE;
      state.queue.record(event, stream);
      return CUDA_SUCCESS;
    });
  };
  driver.event_query = [](CUevent handle) {
    return with_event(handle, [](FakeState& state, const std::shared_ptr<FakeEvent>& event) {
      return answer_about(state, *itself(event), false);
    });
  };
  driver.event_synchronize = [](CUevent handle) {
    return with_event(handle, [](FakeState& state, const std::shared_ptr<FakeEvent>& event) {
      return answer_about(state, *itself(event), true);
    });
  };
  // A piece of work takes one microsecond.
  driver.event_elapsed_time = [](float* milliseconds, CUevent from, CUevent to) {
    return guarded([&](FakeState& state) {
      const std::shared_ptr<FakeEvent> begin = event_of(state, from);
      const std::shared_ptr<FakeEvent> end = event_of(state, to);
      if (!begin || !end || !begin->timed || !end->timed) return CUDA_ERROR_INVALID_HANDLE;
      if (begin->recorded == 0 || end->recorded == 0) return CUDA_ERROR_INVALID_HANDLE;
      if (begin->done < begin->recorded || end->done < end->recorded) return CUDA_ERROR_NOT_READY;
      *milliseconds = (float(end->time) - float(begin->time)) * 1e-3f;
      return CUDA_SUCCESS;
    });
  };
}

// Returns the memory that kernels of a stream may not use.
std::vector<std::span<std::byte>> unreached(FakeState& state, int process, int gpu) {
  std::vector<std::span<std::byte>> all;
  state.memory.closed_to(process, gpu, state.context(process, gpu).peers, all);
  return all;
}

bool starts_early(const CUlaunchConfig& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const auto& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
           attribute.value.programmaticStreamSerializationAllowed != 0;
  });
}

CUresult launch(FakeState& state, FakeStream* stream, const EmulatedKernel& kernel,
                LaunchShape shape, const void* arguments) {
  const std::size_t number = state.launches++;
  state.options.on_launch();
  if (number == state.options.refused_launch) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (stream->capture && state.recorded++ == state.options.refused_recorded)
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const bool fails = number == state.options.failed_launch;
  const auto* const begin = static_cast<const std::byte*>(arguments);
  state.queue.push(stream, kernel.name,
                   [&state, &kernel, shape, fails, gpu = stream->gpu, process = stream->process,
                    copied = std::vector<std::byte>(begin, begin + kernel.bytes)] {
                     if (fails) state.error = CUDA_ERROR_ILLEGAL_ADDRESS;
                     if (state.error != CUDA_SUCCESS) return;
                     const FakeFence fence(unreached(state, process, gpu));
                     emulate(shape, [&] { kernel.run(copied.data()); });
                     if (fence.touched()) state.error = CUDA_ERROR_ILLEGAL_ADDRESS;
                     state.kernels_run.push_back(kernel.name);
                   });
  return CUDA_SUCCESS;
}

}  // namespace

std::shared_ptr<FakeEvent> event_of(const FakeState& state, CUevent handle) {
  const auto found = std::find_if(state.events.begin(), state.events.end(), [&](const auto& e) {
    return e.get() == reinterpret_cast<FakeEvent*>(handle);
  });
  return found == state.events.end() ? nullptr : *found;
}

void fill_streams(Driver& driver) {
  fill_events(driver);
  driver.stream_create = [](CUstream* handle, unsigned flags, int) {
    return in_context([&](FakeState& state, const FakeContext& context) {
      if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_NOT_SUPPORTED;
      FakeStream* const stream = state.queue.make_stream(context.gpu);
      stream->process = context.process;
      *handle = reinterpret_cast<CUstream>(stream);
      return CUDA_SUCCESS;
    });
  };
  driver.stream_destroy = [](CUstream handle) {
    return with_stream(handle, [](FakeState& state, FakeStream* stream) {
      state.queue.drop(stream);
      return CUDA_SUCCESS;
    });
  };
  driver.stream_query = [](CUstream handle) {
    return with_stream(handle, [](FakeState& state, FakeStream* stream) {
      return result_of(state.queue.query(stream));
    });
  };
  driver.stream_synchronize = [](CUstream handle) {
    return with_stream(handle, [](FakeState& state, FakeStream* stream) {
      return result_of(state.queue.finish(stream));
    });
  };
  driver.stream_wait_event = [](CUstream handle, CUevent event_handle, unsigned) {
    return with_stream(handle, [&](FakeState& state, FakeStream* stream) {
      const std::shared_ptr<FakeEvent> event = event_of(state, event_handle);
      if (event == nullptr || event->process != stream->process) return CUDA_ERROR_INVALID_HANDLE;
      return result_of(state.queue.wait(stream, itself(event)));
    });
  };
  // A kernel that may start early waits for the previous one, so it runs after that here.
  driver.launch_kernel_ex = [](const CUlaunchConfig* config, CUfunction function, void** parameters,
                               void**) {
    return with_stream(config->hStream, [&](FakeState& state, FakeStream* stream) {
      const CUlaunchConfig& c = *config;
      if (c.gridDimX == 0 || c.gridDimY == 0 || c.gridDimZ != 1 || c.blockDimX == 0 ||
          c.blockDimY != 1 || c.blockDimZ != 1) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      const bool early = starts_early(c);
      if (early && (state.options.capability < 90 || state.options.driver_version < 12030))
        return CUDA_ERROR_NOT_SUPPORTED;
      if (early) ++state.early;
      const auto* const found = reinterpret_cast<const FakeModule::Function*>(function);
      if (found->gpu != stream->gpu) return CUDA_ERROR_INVALID_HANDLE;
      if (c.sharedMemBytes > found->most_shared) return CUDA_ERROR_INVALID_VALUE;
      return launch(state, stream, *found->kernel,
                    {c.gridDimX, c.gridDimY, c.blockDimX, c.sharedMemBytes}, parameters[0]);
    });
  };
}

}  // namespace lockstep::engine::cuda
