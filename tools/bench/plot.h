// SPDX-License-Identifier: MIT
// A picture of a benchmark: bus bandwidth over size, both logarithmic, a line for each algorithm in
// place and (dashed) out of place, for MPI and for the roofline. Pure.
#pragma once
#include <string>
#include <vector>

#include "tools/bench/row.h"

namespace lockstep::tools::bench {

// `mpi`: what MPI calls its own.
std::string to_svg(const std::vector<Row>& rows, const std::string& title, const std::string& mpi);

}  // namespace lockstep::tools::bench
