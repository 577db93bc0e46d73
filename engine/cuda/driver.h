// SPDX-License-Identifier: MIT
// The functions of NVIDIA's driver that lockstep calls, as a table. The program thus starts without
// a driver, and tests can substitute a fake one. A field has the name of the driver's function
// without its `cu`. A table is plain data: copy it freely and call its functions from any thread.
// Error messages are the driver's.
#pragma once
#include <cuda.h>

#include <cstdint>
#include <string>

namespace lockstep::engine::cuda {

struct Driver {
  // These functions initialize the driver and describe it and its errors.
  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driver_get_version = nullptr;
  decltype(&cuGetErrorName) get_error_name = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;

  decltype(&cuDeviceGetCount) device_get_count = nullptr;
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetName) device_get_name = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&cuDeviceTotalMem) device_total_mem = nullptr;
  decltype(&cuDeviceGetPCIBusId) device_get_pci_bus_id = nullptr;

  decltype(&cuDevicePrimaryCtxRetain) device_primary_ctx_retain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) device_primary_ctx_release = nullptr;
  decltype(&cuCtxSetCurrent) ctx_set_current = nullptr;
  decltype(&cuCtxGetCurrent) ctx_get_current = nullptr;

  // Copies find out the memory types of their addresses.
  decltype(&cuMemGetInfo) mem_get_info = nullptr;
  decltype(&cuMemAlloc) mem_alloc = nullptr;
  decltype(&cuMemFree) mem_free = nullptr;
  decltype(&cuMemHostAlloc) mem_host_alloc = nullptr;
  decltype(&cuMemFreeHost) mem_free_host = nullptr;
  decltype(&cuMemcpy) memcpy = nullptr;
  decltype(&cuMemcpyAsync) memcpy_async = nullptr;
  decltype(&cuMemsetD8) memset_d8 = nullptr;
  decltype(&cuMemsetD8Async) memset_d8_async = nullptr;

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

  decltype(&cuModuleLoadData) module_load_data = nullptr;
  decltype(&cuModuleUnload) module_unload = nullptr;
  decltype(&cuModuleGetFunction) module_get_function = nullptr;
  decltype(&cuModuleGetFunctionCount) module_get_function_count = nullptr;
  decltype(&cuModuleEnumerateFunctions) module_enumerate_functions = nullptr;
  decltype(&cuFuncGetName) func_get_name = nullptr;
  decltype(&cuFuncLoad) func_load = nullptr;
  decltype(&cuFuncSetAttribute) func_set_attribute = nullptr;
  decltype(&cuLaunchKernelEx) launch_kernel_ex = nullptr;

  decltype(&cuStreamBeginCapture) stream_begin_capture = nullptr;
  decltype(&cuStreamEndCapture) stream_end_capture = nullptr;
  decltype(&cuStreamIsCapturing) stream_is_capturing = nullptr;
  decltype(&cuGraphDestroy) graph_destroy = nullptr;
  decltype(&cuGraphInstantiate) graph_instantiate = nullptr;
  decltype(&cuGraphExecUpdate) graph_exec_update = nullptr;
  decltype(&cuGraphLaunch) graph_launch = nullptr;
  decltype(&cuGraphExecDestroy) graph_exec_destroy = nullptr;

  // These functions access memory of other GPUs and of other processes.
  decltype(&cuDeviceCanAccessPeer) device_can_access_peer = nullptr;
  decltype(&cuDeviceGetP2PAttribute) device_get_p2p_attribute = nullptr;
  decltype(&cuCtxEnablePeerAccess) ctx_enable_peer_access = nullptr;
  decltype(&cuIpcGetMemHandle) ipc_get_mem_handle = nullptr;
  decltype(&cuIpcOpenMemHandle) ipc_open_mem_handle = nullptr;
  decltype(&cuIpcCloseMemHandle) ipc_close_mem_handle = nullptr;
  decltype(&cuIpcGetEventHandle) ipc_get_event_handle = nullptr;
  decltype(&cuIpcOpenEventHandle) ipc_open_event_handle = nullptr;
  // These functions pin host memory after its allocation.
  decltype(&cuMemHostRegister) mem_host_register = nullptr;
  decltype(&cuMemHostUnregister) mem_host_unregister = nullptr;
  decltype(&cuMemHostGetDevicePointer) mem_host_get_device_pointer = nullptr;
};

// Opens libcuda.so.1 and calls `start`. Takes a tenth of a second, or more if no other process uses
// a GPU. Throws Error(kUnavailable) with one line, also if a function is missing.
Driver load_driver();

// Initializes the driver; call it before all other functions. Throws Error(kUnavailable) with one
// line if there is no GPU, or if the driver supports only an older major version of CUDA than this
// build's headers.
void start(const Driver& driver);

// Returns the CUDA version that the driver supports: 13000 for 13.0.
int version_of(const Driver& driver);
std::string version_text(int version);  // "13.0"

// Returns the number of GPUs that the driver shows. Indices of `Context` are below it.
int device_count(const Driver& driver);

// Returns the driver's type for an address.
inline CUdeviceptr address_of(const void* pointer) {
  return CUdeviceptr(reinterpret_cast<std::uintptr_t>(pointer));
}

// Returns a message: "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
std::string words(const Driver& driver, CUresult result);

// Throws Error(kDevice) unless `result` is success: "`who`: `call` failed: `words`".
void check(const Driver& driver, CUresult result, const std::string& who, const char* call);

}  // namespace lockstep::engine::cuda
