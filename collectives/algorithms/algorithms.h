// SPDX-License-Identifier: MIT
// All-reduce algorithms: pure functions that turn a request into a plan, the same on every rank.
// They accept any number of ranks and hosts, counts below the number of ranks, and empty ranges.
// collectives/README.md lists the rounds and bytes of each. They throw Error(kInvalid) if an
// algorithm cannot serve a request (direct across hosts). X_same returns the name of the algorithm
// (registry.h) whose plan for a request equals X's step by step; empty if there is none. It does
// not detect plans that are equal only for some Request::rotation.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/request.h"

namespace lockstep::collectives {

// Makes a plan for one host. Each rank owns a slice, reads it from all ranks and stores it into
// all. The two passes over memory are the lower bound. Sums keep rank order (a balanced tree).
Plan direct_all_reduce(const Request& request);
// Returns why direct cannot serve ranks on these hosts ("needs all ranks on one host ..."), or an
// empty string if it can.
std::string direct_refusal(const std::vector<int>& host);
// Makes the two halves of an update, for optimizers that need a norm first. The first half sums
// each rank's slice and sends its squares to all ranks. The second updates the slice and stores it
// into all ranks.
Plan direct_reduce_scatter(const Request& request);
Plan direct_update_and_store(const Request& request);
// Makes a plan in which all ranks get each slice from its owner: the rank that holds it after a
// direct reduce-scatter of the same request.
Plan direct_all_gather(const Request& request);
// Makes a plan in which all ranks get the numbers of rank `root`. Each rank copies one slice of
// them.
Plan direct_broadcast(const Request& request);

// Makes a plan for one host and few bytes. Every rank copies its numbers into its scratch and adds
// everything itself: one wait instead of two, but more memory traffic. Requests above 256 KiB use
// direct. The result has the same bits as direct's. The plan uses one_shot_scratch elements from
// request.scratch, which no other plan may use.
Plan one_shot_all_reduce(const Request& request);
std::size_t one_shot_scratch(const Request& request);
std::string_view one_shot_same(const Request& request);

// Makes a plan for any hosts: reduce-scatter and all-gather around a ring (Baidu 2017, after
// Patarasuk and Yuan 2009). The ranks of a host are neighbors, in the request's order. They read
// each other's memory; messages connect hosts. The plan is bandwidth-optimal: each link carries
// 2 (n - 1) / n of the bytes. It uses ring_scratch elements from request.scratch.
Plan ring_all_reduce(const Request& request);
std::size_t ring_scratch(const Request& request);
std::string_view ring_same(const Request& request);

// Makes a plan for any hosts with a logarithmic number of rounds (Thakur, Rabenseifner and Gropp
// 2005). All ranks halve and double the range; few bytes are sent whole (recursive doubling). Sums
// keep rank order.
Plan halving_doubling_all_reduce(const Request& request);
std::size_t halving_doubling_scratch(const Request& request);
std::string_view halving_doubling_same(const Request& request);

// Makes plans for any hosts; on one host they are direct. Every rank leads a slice: it adds that
// slice of all ranks of its host and stores the result into all. Between hosts the leaders of each
// slice form a ring, or halve and double. Each of H hosts sends 2 (H - 1) / H of the bytes, which
// is the lower bound.
Plan hierarchical_all_reduce(const Request& request);
std::size_t hierarchical_scratch(const Request& request);
std::string_view hierarchical_same(const Request& request);
Plan hierarchical_halving_all_reduce(const Request& request);
std::size_t hierarchical_halving_scratch(const Request& request);
std::string_view hierarchical_halving_same(const Request& request);
// Makes a hierarchical plan with one leader per host, which does all the work (the scheme of 2018).
// It sends as many bytes between hosts in fewer messages.
Plan leader_hierarchical_all_reduce(const Request& request);
std::size_t leader_hierarchical_scratch(const Request& request);
std::string_view leader_hierarchical_same(const Request& request);

// Makes plans without communication: every rank updates all weights from sums that it holds, or
// computes the squares of these sums.
Plan local_update(const Request& request);
Plan local_squares(const Request& request);

}  // namespace lockstep::collectives
