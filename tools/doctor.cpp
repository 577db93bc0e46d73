// SPDX-License-Identifier: MIT
// lockstep doctor: shows the parts that this machine and this build have, and the use of each
// missing part. The exit code is always 0, because a missing part is a fact, not a failure.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "collectives/memory/mapped_memory.h"
#include "collectives/mpi/cuda_aware.h"
#include "collectives/mpi/mpi_bootstrap.h"
#include "collectives/nccl/nccl.h"
#include "collectives/run/peer_watch.h"
#include "collectives/tcp/interfaces.h"
#include "collectives/topology/machine.h"
#include "collectives/topology/processor_map.h"
#include "engine/base/version.h"
#include "engine/runtime/devices.h"
#include "strategies/grpc/presence.h"
#include "strategies/pmix/exchange.h"
#include "strategies/session/launch.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/standard_streams.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

struct Finding {
  std::string part;
  bool found = true;
  // The finding, or the use of a missing part and how to get it.
  std::string text;
};

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder) / name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return {};
}

// Tries an operation that the kernel may refuse, e.g. inside a container.
Finding attempt(std::string part, const std::string& works, const std::string& gives,
                const std::function<void()>& body) {
  try {
    body();
    return {std::move(part), true, works};
  } catch (const engine::Error& e) {
    return {std::move(part), false, fmt::format("{} ({})", gives, e.what())};
  }
}

// Collects the findings.
class Findings {
 public:
  void found(std::string part, std::string text) { add(std::move(part), true, std::move(text)); }
  void missing(std::string part, std::string text) { add(std::move(part), false, std::move(text)); }
  void add(std::string part, bool is_there, std::string text) {
    all_.push_back({std::move(part), is_there, std::move(text)});
  }
  void add(Finding finding) { all_.push_back(std::move(finding)); }
  std::vector<Finding> take() { return std::move(all_); }

 private:
  std::vector<Finding> all_;
};

void examine_host(Findings& findings) {
  const collectives::Machine machine = collectives::machine();
  findings.found("host", machine.hostname);
  findings.found("processor", fmt::format("{}, {} of {} cores may be used", machine.cpu,
                                          machine.cores, sysconf(_SC_NPROCESSORS_ONLN)));
  const collectives::MachineMap map = collectives::processor_map();
  findings.found("NUMA nodes", fmt::format("{} ({})", map.nodes.size(),
                                           fmt::join(collectives::describe_nodes(map), "; ")));
  if (collectives::hwloc::available()) {
    findings.found("hwloc", fmt::format("{}: tells cores, hyperthreads, caches and NUMA nodes",
                                        collectives::hwloc::version()));
  } else {
    findings.missing(
        "hwloc",
        "built without it; it tells which processors are hyperthreads of one core or share a "
        "cache, and what memory NUMA nodes have, for where ranks run (install libhwloc-dev, "
        "build again)");
  }
  if (machine.memory > 0) {
    findings.found("memory",
                   fmt::format("{:.1f} GiB may be used", double(machine.memory) / 0x1p30));
  } else {
    findings.missing("memory", "the system does not say how much there is");
  }
}

void examine_gpus(Findings& findings) {
  const auto devices = engine::all_devices();
  for (const auto& device : devices) {
    findings.found("device " + to_string(device->id()), device->description());
  }
  const bool gpus =
      std::ranges::any_of(devices, [](const auto& device) { return device->id().kind == "cuda"; });
  const std::vector<std::string> told = engine::describe_gpus();  // the driver first
  findings.add("CUDA", told.size() > 1, told[0]);
  for (std::size_t i = 1; i < told.size(); ++i)
    findings.add(i == 1 ? "GPUs" : fmt::format("GPUs, {}", i), gpus, told[i]);
  for (const engine::LibraryFinding& library : engine::gpu_libraries())
    findings.add(library.name, library.found, library.text);
  findings.add("NCCL", collectives::nccl::available(), collectives::nccl::finding());
  const std::vector<std::string> links = describe(engine::gpu_topology());
  for (std::size_t i = 0; i < links.size(); ++i)
    findings.found(i == 0 ? "GPU links" : fmt::format("GPU links, {}", i + 1), links[i]);
}

void examine_mpi(Findings& findings) {
  if (collectives::mpi::available()) {
    findings.found("MPI", collectives::mpi::version());
  } else {
    findings.missing("MPI",
                     "built without it; it gives jobs of several processes and hosts (install "
                     "libopenmpi-dev, build again)");
  }
  if (const std::optional<bool> aware = collectives::mpi::cuda_aware()) {
    findings.found(
        "MPI and GPUs",
        *aware ? "MPI takes memory of GPUs; lockstep does not need that: messages between GPUs of "
                 "several processes go by NCCL, or through pinned memory of the host"
               : "MPI is not CUDA-aware: messages between GPUs of several processes go by NCCL, or "
                 "through pinned memory of the host");
  } else {
    findings.missing("MPI and GPUs",
                     "no MPI here says whether it takes memory of GPUs; lockstep needs none "
                     "that does");
  }
  const std::string mpirun = find_program("mpirun");
  if (!mpirun.empty()) {
    findings.found("mpirun", mpirun);
  } else {
    findings.missing("mpirun",
                     "not in PATH; it starts jobs of several processes (install openmpi-bin)");
  }
  const std::string keep_alive = collectives::mpi::missing_keep_alive();
  if (keep_alive.empty()) {
    findings.found("keep-alive", "mpirun notices a host that it cannot reach any more");
  } else {
    findings.missing("keep-alive", "needed by jobs of several hosts alone: " + keep_alive);
  }
}

void examine_servers(Findings& findings) {
  if (strategies::grpc::available()) {
    findings.found("gRPC", strategies::grpc::version());
  } else {
    findings.missing(
        "gRPC",
        "built without it; it gives parameter servers (install libgrpc++-dev libprotobuf-dev "
        "protobuf-compiler, build again)");
  }
  if (strategies::pmix::available()) {
    findings.found("PMIx", strategies::pmix::version());
  } else {
    findings.missing(
        "PMIx",
        "built without it; by it tasks of a parameter server job find each other under mpirun "
        "(install libpmix-dev, build again)");
  }
}

void examine_network(Findings& findings) {
  const auto network = collectives::tcp::interfaces();
  for (std::size_t i = 0; i < network.size(); ++i)
    findings.found(i == 0 ? "network" : fmt::format("network, {}", i + 1), describe(network[i]));
  if (network.empty())
    findings.missing("network", "there is no interface but loopback: no other host");
  const std::vector<std::string> fabric = collectives::tcp::fabric_ports();
  for (std::size_t i = 0; i < fabric.size(); ++i)
    findings.found(i == 0 ? "fabric" : fmt::format("fabric, {}", i + 1), fabric[i]);
}

void examine_job(Findings& findings) {
  const strategies::Launch launch = strategies::launch();
  std::string foreign;
  try {
    strategies::require_known_launcher();
  } catch (const engine::Error& error) {
    foreign = error.what();
  }
  if (!foreign.empty()) {
    findings.missing("job", foreign);
  } else if (launch.present) {
    findings.found(
        "job",
        fmt::format("process {} (from 0) of {}, started by {}{}", launch.rank, launch.size,
                    launch.launcher,
                    launch.rendezvous.empty() ? "" : ", which meet at " + launch.rendezvous));
  } else {
    findings.found("job", "one process, which no launcher started");
  }
}

void examine_system(Findings& findings) {
  findings.add(attempt("shared memory", "memfd works, whatever the size of /dev/shm",
                       "gives all-reduce through memory between processes of a host", [] {
                         collectives::MappedMemory memory("lockstep doctor", 1 << 20);
                         collectives::map_peer(memory.address());
                       }));
  findings.add(attempt("process watch", "pidfd works: a dead process is noticed at once",
                       "gives notice of a dead process at once", [] {
                         collectives::PeerWatch watch([](const collectives::PeerProcess&) {});
                         watch.add({{}, int(getpid())});
                         watch.release();
                       }));
}

std::vector<Finding> examine() {
  Findings findings;
  findings.found("lockstep", std::string(engine::version()));
  examine_host(findings);
  examine_gpus(findings);
  examine_mpi(findings);
  examine_servers(findings);
  examine_network(findings);
  examine_job(findings);
  examine_system(findings);
  return findings.take();
}

}  // namespace

Command add_doctor(CLI::App& app) {
  auto json = std::make_shared<bool>(false);  // lives as long as the parser's callbacks
  app.option_defaults()->group("General");
  app.add_flag("--json", *json, "print one JSON object instead of text");
  end_help(app, "  lockstep doctor\n  mpirun -n 2 lockstep doctor --json");
  return [json](const Program&) {
    const std::vector<Finding> findings = examine();
    if (*json) {
      nlohmann::json object = nlohmann::json::object();
      for (const Finding& f : findings) object[f.part] = {{"found", f.found}, {"text", f.text}};
      print(object.dump() + "\n");
      return int(kDone);
    }
    const strategies::Launch launch = strategies::launch();
    if (launch.one_terminal() && launch.local_rank != 0) return int(kDone);  // the host is the same
    std::size_t width = 0;
    for (const Finding& f : findings) width = std::max(width, f.part.size());
    std::string text;
    for (const Finding& f : findings)
      text += fmt::format("{} {:{}} {}\n", f.found ? "found " : "absent", f.part, width, f.text);
    print(text);
    return int(kDone);
  };
}

}  // namespace lockstep::tools
