// SPDX-License-Identifier: MIT
// The functions of NVIDIA's driver that lockstep calls, as a table, so that the program starts
// where there is no driver, and tests can put another one in. A field is named as the driver's
// function without its `cu`. A table is plain data: copy it freely; any thread may call what it
// holds. Words of errors are the driver's.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <string>

namespace lockstep::engine::cuda {

struct Driver {
  // The driver itself, and what its errors are called.
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuGetErrorName) get_error_name = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;

  // Devices.
  decltype(&cuDeviceGetCount) device_get_count = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuDeviceTotalMem) device_total_mem = nullptr;
  decltype(&cuDeviceGetPCIBusId) device_get_pci_bus_id = nullptr;

  // Contexts.
  decltype(&cuDevicePrimaryCtxRetain) device_primary_ctx_retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) device_primary_ctx_release = nullptr;
  decltype(&cuCtxSetCurrent) ctx_set_current = nullptr;
  decltype(&cuCtxGetCurrent) ctx_get_current = nullptr;

  // Memory. Copies know the kinds of their addresses by themselves.
  decltype(&cuMemGetInfo) mem_get_info = nullptr;
  decltype(&cuMemAlloc) mem_alloc = nullptr;
  decltype(&cuMemFree) mem_free = nullptr;
  decltype(&cuMemHostAlloc) mem_host_alloc = nullptr;
  decltype(&cuMemFreeHost) mem_free_host = nullptr;
  decltype(&cuMemcpy) memcpy = nullptr;
  decltype(&cuMemcpyAsync) memcpy_async = nullptr;
  decltype(&cuMemsetD8) memset_d8 = nullptr;
  decltype(&cuMemsetD8Async) memset_d8_async = nullptr;

  // Streams and events.
  decltype(&cuStreamCreateWithPriority) stream_create = nullptr;
  decltype(&cuStreamDestroy) stream_destroy = nullptr;
  decltype(&cuStreamQuery) stream_query = nullptr;
  decltype(&cuStreamSynchronize) stream_synchronize = nullptr;
  decltype(&cuStreamWaitEvent) stream_wait_event = nullptr;
  decltype(&cuEventCreate) event_create = nullptr;
  decltype(&cuEventDestroy) event_destroy = nullptr;
  decltype(&cuEventRecord) event_record = nullptr;
  decltype(&cuEventQuery) event_query = nullptr;
  decltype(&cuEventSynchronize) event_synchronize = nullptr;
  decltype(&cuEventElapsedTime) event_elapsed_time = nullptr;

  // Modules and their kernels.
  decltype(&cuModuleLoadData) module_load_data = nullptr;
  decltype(&cuModuleUnload) module_unload = nullptr;
  decltype(&cuModuleGetFunction) module_get_function = nullptr;
  decltype(&cuModuleGetFunctionCount) module_get_function_count = nullptr;
  decltype(&cuModuleEnumerateFunctions) module_enumerate_functions = nullptr;
  decltype(&cuFuncGetName) func_get_name = nullptr;
  decltype(&cuFuncLoad) func_load = nullptr;
  decltype(&cuLaunchKernelEx) launch_kernel_ex = nullptr;

  // Streams recorded as graphs.
  decltype(&cuStreamBeginCapture) stream_begin_capture = nullptr;
  decltype(&cuStreamEndCapture) stream_end_capture = nullptr;
  decltype(&cuStreamIsCapturing) stream_is_capturing = nullptr;
  decltype(&cuGraphDestroy) graph_destroy = nullptr;
  decltype(&cuGraphInstantiate) graph_instantiate = nullptr;
  decltype(&cuGraphExecUpdate) graph_exec_update = nullptr;
  decltype(&cuGraphLaunch) graph_launch = nullptr;
  decltype(&cuGraphExecDestroy) graph_exec_destroy = nullptr;

  // Memory of other GPUs, and of other processes.
  decltype(&cuDeviceCanAccessPeer) device_can_access_peer = nullptr;
  decltype(&cuDeviceGetP2PAttribute) device_get_p2p_attribute = nullptr;
  decltype(&cuCtxEnablePeerAccess) ctx_enable_peer_access = nullptr;
  decltype(&cuIpcGetMemHandle) ipc_get_mem_handle = nullptr;
  decltype(&cuIpcOpenMemHandle) ipc_open_mem_handle = nullptr;
  decltype(&cuIpcCloseMemHandle) ipc_close_mem_handle = nullptr;
  decltype(&cuIpcGetEventHandle) ipc_get_event_handle = nullptr;
  decltype(&cuIpcOpenEventHandle) ipc_open_event_handle = nullptr;
  // Memory of the host that is there already, pinned where it lies.
  decltype(&cuMemHostRegister) mem_host_register = nullptr;
  decltype(&cuMemHostUnregister) mem_host_unregister = nullptr;
  decltype(&cuMemHostGetDevicePointer) mem_host_get_device_pointer = nullptr;
};

// Opens libcuda.so.1 and starts it (`start`). Throws Error(kUnavailable), in one line, also where a
// function is missing. A tenth of a second, or more where no other process uses a GPU.
Driver load_driver();

// Has to come before every other call. Throws Error(kUnavailable), in one line, where the driver is
// of an older major version of CUDA than the headers this was compiled with, or sees no GPU.
void start(const Driver& driver);

// The version of CUDA that the driver is made for: 13000 for 13.0.
int version_of(const Driver& driver);
std::string version_text(int version);  // "13.0"

// GPUs that the driver shows: the indices of `Context` are below it.
int device_count(const Driver& driver);

// The driver's name for a place in memory.
inline CUdeviceptr address_of(const void* pointer) {
  return CUdeviceptr(reinterpret_cast<std::uintptr_t>(pointer));
}

// "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
std::string words(const Driver& driver, CUresult result);

// Throws Error(kDevice) where `result` is not success: "`who`: `call` failed: `words`".
void check(const Driver& driver, CUresult result, const std::string& who, const char* call);

}  // namespace lockstep::engine::cuda
