// SPDX-License-Identifier: MIT
// gRPC channel arguments of both ends of a connection, as names and values. Pure.
//
// Keep-alive: an end sends a ping after a second without a byte. The connection is lost after
// another second without an answer. Reads are large, since bodies are large.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace lockstep::strategies::grpc {

using ChannelArguments = std::vector<std::pair<std::string, int>>;

ChannelArguments arguments_of_server();
ChannelArguments arguments_of_client();

// Makes glibc's allocator keep freed memory, up to some hundred megabytes. Otherwise it returns the
// memory to the system and fetches it again, zeroed, for each chunk that arrives. Affects the whole
// process; repeated calls cost nothing. Thread-safe.
void keep_freed_memory();

}  // namespace lockstep::strategies::grpc
