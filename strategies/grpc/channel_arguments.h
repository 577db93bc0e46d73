// SPDX-License-Identifier: MIT
// What both ends tell gRPC of their connections, as names and values of its channel arguments.
// Pure.
//
// How they notice that the other end has fallen silent: after a second without a byte they ask, and
// after another without an answer the connection is lost. How they read: in large pieces, since
// bodies are large.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep::strategies::grpc {

using ChannelArguments = std::vector<std::pair<std::string, int>>;

ChannelArguments arguments_of_server();
ChannelArguments arguments_of_client();

// Has glibc's allocator keep memory that is freed, up to some hundred megabytes, instead of giving
// it back and fetching it again, zeroed, for each chunk that comes. For the whole process; costs
// nothing to repeat. Any thread.
void keep_freed_memory();

}  // namespace lockstep::strategies::grpc
