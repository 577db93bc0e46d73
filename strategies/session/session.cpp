// SPDX-License-Identifier: MIT
#include "strategies/session/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <utility>

#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/session/processor_watch.h"
#include "strategies/session/supervisor.h"

namespace lockstep::strategies {
namespace {

// Returns a silent log: one process per host speaks for all.
engine::Log silent() {
  return engine::Log("", engine::Log::Level::kError, [](engine::Log::Level, std::string_view) {});
}

}  // namespace

Session::Session(int argc, char** argv, SessionOptions options)
    : options_(std::move(options)),
      program_(argc > 0 && argv != nullptr ? std::filesystem::path(argv[0]).filename().string()
                                           : "lockstep"),
      arguments_(argc > 0 ? argv : nullptr),
      launch_(options_.launched && !supervised() ? collectives::mpi::launch()
                                                 : collectives::mpi::Launch()),
      devices_(engine::host_devices()),
      exceptions_(std::uncaught_exceptions()) {
  name_task();
  require_possible(options_.network);
  if (options_.launched && !supervised() && tf_config_of_environment() == nullptr)
    collectives::mpi::require_known_launcher();
  // Without the watch a sibling's early death would leave this process waiting in MPI_Init.
  if (launch_.present && launch_.local_size > 1) {
    start_watch_ = std::make_unique<collectives::mpi::StartWatch>();
  }
}

Session::Session(MpiCommunicator communicator, SessionOptions options)
    : options_(std::move(options)),
      program_("lockstep"),
      devices_(engine::host_devices()),
      bootstrap_(collectives::mpi::open(communicator, {options_.deadline})),
      exceptions_(std::uncaught_exceptions()) {
  require_possible(options_.network);
  // The communicator's processes are the job, whatever the launcher started.
  const std::vector<int> hosts = bootstrap_->hosts();
  launch_.present = true;
  launch_.rank = bootstrap_->process();
  launch_.size = bootstrap_->processes();
  const auto me = hosts.begin() + launch_.rank;
  launch_.local_rank = int(std::count(hosts.begin(), me, *me));
  launch_.local_size = int(std::count(hosts.begin(), hosts.end(), *me));
}

Session::~Session() {
  if (abandoned_ || std::uncaught_exceptions() > exceptions_ || !bootstrap_) return;
  try {
    bootstrap_->finish();
  } catch (const std::exception& e) {
    options_.log.error("{}: the job did not end orderly: {}", program_, e.what());
  }
}

engine::Device& Session::device(const std::string& name) {
  const engine::DeviceId id = engine::parse_device_id(name);
  if (id.kind != "cuda") return engine::find(devices_, id);
  if (all_devices_.empty()) all_devices_ = engine::all_devices(options_.gpus);
  return engine::find(all_devices_, id);
}

std::vector<engine::Device*> Session::gpus() {
  if (all_devices_.empty()) all_devices_ = engine::all_devices(options_.gpus);
  std::vector<engine::Device*> gpus;
  for (const auto& device : all_devices_)
    if (device->id().kind == "cuda") gpus.push_back(device.get());
  return gpus;
}

std::vector<std::string> Session::memory_of_gpus() const {
  std::vector<engine::Device*> devices;
  for (const auto& device : all_devices_) devices.push_back(device.get());
  return engine::describe_memory(devices);
}

collectives::Bootstrap& Session::bootstrap() {
  if (!bootstrap_) {
    const bool several = launch_.present && launch_.size > 1;
    if (several) {
      bootstrap_ = collectives::mpi::open({options_.deadline});
    } else {
      bootstrap_ = collectives::single_process();
    }
  }
  return *bootstrap_;
}

void Session::watch_processors(int of_replica, int threads) {
  // Open MPI sets this if it has bound the process.
  const long all = sysconf(_SC_NPROCESSORS_ONLN), usable = collectives::machine().cores;
  if (std::getenv("OMPI_MCA_orte_bound_at_launch") != nullptr && usable < all &&
      launch_.local_rank == 0)
    log().warning(
        "mpirun has bound each process to {} of {} processors; with --bind-to none lockstep binds "
        "each replica itself",
        usable, all);
  processor_watch_.reset();
  processor_watch_ = std::make_unique<ProcessorWatch>(
      ProcessorWatchOptions{.library_threads = of_replica,
                            .threads = threads,
                            .processors = collectives::machine().cores,
                            .log = launch_.local_rank == 0 ? options_.log : silent()});
}

void Session::connected() {
  start_watch_.reset();
  if (!bootstrap_ || launch_.rank != 0 || std::exchange(connected_, true)) return;
  const bool several_hosts = std::ranges::max(bootstrap_->hosts()) > 0;
  const std::string missing = collectives::mpi::missing_keep_alive();
  if (several_hosts && collectives::mpi::launch().present && !missing.empty())
    log().warning("{}", missing);
}

}  // namespace lockstep::strategies
