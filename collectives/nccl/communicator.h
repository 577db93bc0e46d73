// SPDX-License-Identifier: MIT
// What NCCL implements, under the names that this folder has for it.
#pragma once
#include "collectives/run/device_communicator.h"

namespace lockstep::collectives::nccl {

using Communicator = DeviceCommunicator;
using Options = DeviceCommunicatorOptions;

}  // namespace lockstep::collectives::nccl
