// SPDX-License-Identifier: MIT
// NVIDIA's collectives, free of NVIDIA's types. The library is looked for when the program runs, so
// a program that was built with it starts without it; a build without its header has `absent.cpp`
// behind this. Any thread; opening reads a file of hundreds of megabytes.
#pragma once
#include <memory>
#include <string>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/nccl/communicator.h"

namespace lockstep::collectives::nccl {

bool available();       // built with NCCL, and this machine has one that is new enough
std::string version();  // "2.28.9"; empty where not available
std::string finding();  // for people, in one line: "NCCL 2.28.9", or why there is none

// One rank a process, of the GPU that is current in the calling thread. Collective over all
// processes; the bootstrap must outlive what is opened, whose waits ask it whether somebody is
// lost. Throws on all processes where one has no NCCL, Error(kUnavailable), or another version than
// the rest, Error(kInvalid); and what else a Communicator throws.
std::unique_ptr<Communicator> open(Bootstrap& bootstrap, const Options& options);

}  // namespace lockstep::collectives::nccl
