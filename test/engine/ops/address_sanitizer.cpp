// SPDX-License-Identifier: MIT
// Sets the default options of builds with the address sanitizer. When oneDNN 2.6 creates a kernel
// for sums of products of many blocks, it reads one entry past a list of offsets. This is harmless
// except at the very end of the sanitizer's mapped memory; wide red zones leave room there.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "redzone=512";
}
