// SPDX-License-Identifier: MIT
#include "engine/cuda/driver.h"

#include "engine/base/error.h"
#include "engine/cuda/library.h"

namespace lockstep::engine::cuda {

// The symbols are those that cuda.h maps the functions to; most of them have a second version.
Driver load_driver() {
  const Library library({.names = {"libcuda.so.1"},
                         .folders = {},
                         .help = "install NVIDIA's driver for GPUs, for CUDA " +
                                 version_text(CUDA_VERSION) + " or newer"});
  Driver driver;
  take(library, driver.init, "cuInit");
  take(library, driver.driver_get_version, "cuDriverGetVersion");
  take(library, driver.get_error_name, "cuGetErrorName");
  take(library, driver.get_error_string, "cuGetErrorString");
  take(library, driver.device_get_count, "cuDeviceGetCount");
  take(library, driver.device_get, "cuDeviceGet");
  take(library, driver.device_get_name, "cuDeviceGetName");
  take(library, driver.device_get_attribute, "cuDeviceGetAttribute");
  take(library, driver.device_total_mem, "cuDeviceTotalMem_v2");
  take(library, driver.device_get_pci_bus_id, "cuDeviceGetPCIBusId");
  take(library, driver.device_primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  take(library, driver.device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2");
  take(library, driver.ctx_set_current, "cuCtxSetCurrent");
  take(library, driver.ctx_get_current, "cuCtxGetCurrent");
  take(library, driver.mem_get_info, "cuMemGetInfo_v2");
  take(library, driver.mem_alloc, "cuMemAlloc_v2");
  take(library, driver.mem_free, "cuMemFree_v2");
  take(library, driver.mem_host_alloc, "cuMemHostAlloc");
  take(library, driver.mem_free_host, "cuMemFreeHost");
  take(library, driver.memcpy, "cuMemcpy");
  take(library, driver.memcpy_async, "cuMemcpyAsync");
  take(library, driver.memset_d8, "cuMemsetD8_v2");
  take(library, driver.memset_d8_async, "cuMemsetD8Async");
  take(library, driver.stream_create, "cuStreamCreateWithPriority");
  take(library, driver.stream_destroy, "cuStreamDestroy_v2");
  take(library, driver.stream_query, "cuStreamQuery");
  take(library, driver.stream_synchronize, "cuStreamSynchronize");
  take(library, driver.stream_wait_event, "cuStreamWaitEvent");
  take(library, driver.event_create, "cuEventCreate");
  take(library, driver.event_destroy, "cuEventDestroy_v2");
  take(library, driver.event_record, "cuEventRecord");
  take(library, driver.event_query, "cuEventQuery");
  take(library, driver.event_synchronize, "cuEventSynchronize");
  take(library, driver.event_elapsed_time, "cuEventElapsedTime_v2");
  take(library, driver.module_load_data, "cuModuleLoadData");
  take(library, driver.module_unload, "cuModuleUnload");
  take(library, driver.module_get_function, "cuModuleGetFunction");
  take(library, driver.module_get_function_count, "cuModuleGetFunctionCount");
  take(library, driver.module_enumerate_functions, "cuModuleEnumerateFunctions");
  take(library, driver.func_get_name, "cuFuncGetName");
  take(library, driver.func_load, "cuFuncLoad");
  take(library, driver.func_set_attribute, "cuFuncSetAttribute");
  take(library, driver.launch_kernel_ex, "cuLaunchKernelEx");
  take(library, driver.stream_begin_capture, "cuStreamBeginCapture_v2");
  take(library, driver.stream_end_capture, "cuStreamEndCapture");
  take(library, driver.stream_is_capturing, "cuStreamIsCapturing");
  take(library, driver.graph_destroy, "cuGraphDestroy");
  take(library, driver.graph_instantiate, "cuGraphInstantiateWithFlags");
  take(library, driver.graph_exec_update, "cuGraphExecUpdate_v2");
  take(library, driver.graph_launch, "cuGraphLaunch");
  take(library, driver.graph_exec_destroy, "cuGraphExecDestroy");
  take(library, driver.device_can_access_peer, "cuDeviceCanAccessPeer");
  take(library, driver.device_get_p2p_attribute, "cuDeviceGetP2PAttribute");
  take(library, driver.ctx_enable_peer_access, "cuCtxEnablePeerAccess");
  take(library, driver.ipc_get_mem_handle, "cuIpcGetMemHandle");
  take(library, driver.ipc_open_mem_handle, "cuIpcOpenMemHandle_v2");
  take(library, driver.ipc_close_mem_handle, "cuIpcCloseMemHandle");
  take(library, driver.ipc_get_event_handle, "cuIpcGetEventHandle");
  take(library, driver.ipc_open_event_handle, "cuIpcOpenEventHandle");
  take(library, driver.mem_host_register, "cuMemHostRegister_v2");
  take(library, driver.mem_host_unregister, "cuMemHostUnregister");
  take(library, driver.mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2");
  start(driver);
  return driver;
}

void start(const Driver& driver) {
  const int version = version_of(driver);
  if (version / 1000 < CUDA_VERSION / 1000) {
    fail(Code::kUnavailable,
         "the driver supports CUDA {}; lockstep was built with {}: install a driver for CUDA {}.0 "
         "or newer, or build lockstep with an older toolkit",
         version_text(version), version_text(CUDA_VERSION), CUDA_VERSION / 1000);
  }
  const CUresult result = driver.init(0);
  if (result != CUDA_SUCCESS) {
    fail(Code::kUnavailable, "the driver could not be started: {}", words(driver, result));
  }
}

int version_of(const Driver& driver) {
  int version = 0;
  check(driver, driver.driver_get_version(&version), "driver", "cuDriverGetVersion");
  return version;
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

int device_count(const Driver& driver) {
  int count = 0;
  check(driver, driver.device_get_count(&count), "driver", "cuDeviceGetCount");
  return count;
}

std::string words(const Driver& driver, CUresult result) {
  const char* text = nullptr;
  const char* name = nullptr;
  if (driver.get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown";
  if (driver.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) {
    return fmt::format("{} ({})", text, int(result));
  }
  return fmt::format("{} ({})", text, name);
}

void check(const Driver& driver, CUresult result, const std::string& who, const char* call) {
  if (result == CUDA_SUCCESS) return;
  fail(Code::kDevice, "{}: {} failed: {}", who, call, words(driver, result));
}

}  // namespace lockstep::engine::cuda
