// SPDX-License-Identifier: MIT
// A plot of a benchmark: bus bandwidth in place over size, both logarithmic. There is a line for
// each algorithm, for MPI or NCCL, and (dashed) for the roofline. If the algorithms are choices by
// size, one line joins them.
#pragma once
#include <string>
#include <vector>

#include "tools/bench/row.h"

namespace lockstep::tools::bench {

// Returns the plot as SVG. `rival`: the name of the other library, MPI or NCCL.
std::string to_svg(const std::vector<Row>& rows, const std::string& title,
                   const std::string& rival);
// Writes the plot into a file. Throws Error(kIo).
void write_svg(const std::string& path, const std::vector<Row>& rows, const std::string& title,
               const std::string& rival);

}  // namespace lockstep::tools::bench
