// SPDX-License-Identifier: MIT
// NVIDIA's collectives, without NVIDIA's types. The library is loaded at run time, so a program
// that was built with it starts without it. A build without its header uses `absent.cpp`.
// Thread-safe. Opening reads a file of hundreds of megabytes. Tests use a fake NCCL; the real one
// has never run on several GPUs.
#pragma once
#include <memory>
#include <string>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/nccl/communicator.h"

namespace lockstep::collectives::nccl {

bool available();       // whether a new enough NCCL was found
std::string version();  // "2.28.9"; empty if not available
std::string finding();  // one line: "NCCL 2.28.9", or the reason

// Opens a communicator with one rank per process, on the GPU that is current in the calling thread.
// Collective over all processes. The bootstrap must outlive it, since waits ask the bootstrap for
// lost processes. Throws on all processes if one has no NCCL (Error(kUnavailable)) or another
// version (Error(kInvalid)), and what a Communicator throws.
std::unique_ptr<Communicator> open(Bootstrap& bootstrap, const Options& options);

}  // namespace lockstep::collectives::nccl
