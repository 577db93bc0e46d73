// SPDX-License-Identifier: MIT
// A picture of a benchmark: bus bandwidth over size, both logarithmic, a line for each algorithm in
// place and (dashed) out of place, for MPI or NCCL and for the roofline.
#pragma once
#include <string>
#include <vector>

#include "tools/bench/row.h"

namespace lockstep::tools::bench {

// `rival`: the name of what was timed beside lockstep.
std::string to_svg(const std::vector<Row>& rows, const std::string& title,
                   const std::string& rival);
// Writes the picture into a file. Throws Error(kIo).
void write_svg(const std::string& path, const std::vector<Row>& rows, const std::string& title,
               const std::string& rival);

}  // namespace lockstep::tools::bench
