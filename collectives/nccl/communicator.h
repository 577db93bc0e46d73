// SPDX-License-Identifier: MIT
// The device communicator's interface, which NCCL implements, under the names of this folder.
#pragma once
#include "collectives/run/device_communicator.h"

namespace lockstep::collectives::nccl {

using Communicator = DeviceCommunicator;
using Options = DeviceCommunicatorOptions;

}  // namespace lockstep::collectives::nccl
