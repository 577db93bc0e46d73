// SPDX-License-Identifier: MIT
// Of builds with the address sanitizer. While oneDNN 2.6 makes a kernel that adds up products of
// many blocks it reads one entry behind a list of offsets: harmless, but where the list lies at the
// very end of what the sanitizer has mapped. Wide red zones leave room behind it.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "redzone=512";
}
