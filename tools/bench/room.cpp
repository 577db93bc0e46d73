// SPDX-License-Identifier: MIT
#include "tools/bench/room.h"

#include <fmt/format.h>

#include "collectives/machine.h"
#include "engine/base/error.h"

namespace lockstep::tools::bench {

void require_room(const strategies::Ranks& ranks, bool threads, std::size_t bytes,
                  const std::string& what) {
  const std::size_t here = ranks.local().size();
  const std::size_t free = collectives::available_memory(threads ? 1 : here);
  const std::size_t mine = threads ? here * bytes : bytes;  // of this process
  std::string refusal;
  if (mine > free) {
    const auto mebibytes = [](std::size_t number) { return double(number) * 0x1p-20; };
    refusal = fmt::format(
        "{} needs {:.1f} MiB for the {} rank{} of a host (input, output and scratch of each), and "
        "{:.1f} MiB are free",
        what, mebibytes(here * bytes), here, here == 1 ? "" : "s",
        mebibytes(threads ? free : here * free));
  }
  // Others may see more that is free, and all are to say the same.
  for (const std::string& one : ranks.bootstrap.all_gather(refusal, "room for the benchmark"))
    if (!one.empty()) throw engine::Error(engine::Code::kMemory, one);
}

}  // namespace lockstep::tools::bench
