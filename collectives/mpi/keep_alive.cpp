// SPDX-License-Identifier: MIT
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/mpi/mpi_bootstrap.h"
#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::collectives::mpi {
namespace {

constexpr std::size_t kMostParameters = 65536;  // bytes of a file

std::optional<int> number_of(std::string_view text, int least) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) return {};
  return value;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

// Returns whether a parameter of Open MPI is a number of at least `least`. The environment precedes
// the user's file, and that precedes the system's (ompi_info --param mca base --level 2). The lines
// of both are "NAME = VALUE".
bool has_parameter(const std::string& name, int least) {
  const char* const set = std::getenv(("OMPI_MCA_" + name).c_str());
  if (set != nullptr && number_of(set, least)) return true;
  std::vector<std::string> files;
  if (const char* const home = std::getenv("HOME"); home != nullptr)
    files.push_back(std::string(home) + "/.openmpi/mca-params.conf");
  files.emplace_back("/etc/openmpi/openmpi-mca-params.conf");
  for (const std::string& file : files) {
    std::string text;
    try {
      text = engine::read_text(file, file, kMostParameters);
    } catch (const engine::Error&) {  // no such file
      continue;
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const std::string_view all(line);
      const std::size_t equals = all.find('=');
      if (equals == all.npos || trimmed(all.substr(0, equals)) != name) continue;
      return number_of(trimmed(all.substr(equals + 1)), least).has_value();
    }
  }
  return false;
}

}  // namespace

std::string missing_keep_alive() {
  if (has_parameter("oob_tcp_keepalive_time", 1)) return {};
  return "mpirun does not notice a host that it cannot reach any more; to end within half a minute "
         "it needs --mca oob_tcp_keepalive_time 10 --mca oob_tcp_keepalive_intvl 5 --mca "
         "oob_tcp_keepalive_probes 3";
}

}  // namespace lockstep::collectives::mpi
