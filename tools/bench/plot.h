// SPDX-License-Identifier: MIT
// A plot of a benchmark: bus bandwidth over size, both logarithmic. There is a line for each
// algorithm in place and (dashed) out of place, for MPI or NCCL, and for the roofline.
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
