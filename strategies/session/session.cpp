// SPDX-License-Identifier: MIT
#include "strategies/session/session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <utility>

#include "collectives/tcp/tcp_bootstrap.h"
#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/session/announcer.h"
#include "strategies/session/job_secret.h"
#include "strategies/session/processor_watch.h"
#include "strategies/session/supervisor.h"

namespace lockstep::strategies {
namespace {

constexpr std::chrono::minutes kPodsMeet{10};

// Returns a silent log: one process per host speaks for all.
engine::Log silent() {
  return engine::Log("", engine::Log::Level::kError, [](engine::Log::Level, std::string_view) {});
}

// Sets the place of this process among those of its host.
void set_local(Launch& launch, const std::vector<int>& hosts) {
  const auto me = hosts.begin() + launch.rank;
  launch.local_rank = int(std::count(hosts.begin(), me, *me));
  launch.local_size = int(std::count(hosts.begin(), hosts.end(), *me));
}

// Pods of a job may start minutes after each other, unless the user sets another deadline.
std::chrono::milliseconds start_deadline(std::chrono::milliseconds deadline) {
  const bool kubernetes = std::getenv("KUBERNETES_SERVICE_HOST") != nullptr;
  return kubernetes && deadline == SessionOptions().deadline ? kPodsMeet : deadline;
}

}  // namespace

Session::Session(int argc, char** argv, SessionOptions options)
    : options_(std::move(options)),
      program_(argc > 0 && argv != nullptr ? std::filesystem::path(argv[0]).filename().string()
                                           : "lockstep"),
      arguments_(argc > 0 ? argv : nullptr),
      launch_(options_.launched && !supervised() ? strategies::launch() : Launch()),
      devices_(engine::host_devices()),
      exceptions_(std::uncaught_exceptions()) {
  name_task();
  require_possible(options_.network);
  if (options_.launched && !supervised() && tf_config_of_environment() == nullptr)
    require_known_launcher();
  if (launch_.port != 0 && options_.network.first_port == 0 && options_.network.transport != "mpi")
    options_.network.first_port = options_.network.last_port = launch_.port;
  // Without the watch a sibling's early death would leave this process waiting in MPI_Init.
  if (launch_.meeting == Launch::Meeting::kMpi && launch_.local_size > 1) {
    start_watch_ = std::make_unique<collectives::mpi::StartWatch>(
        collectives::mpi::Place{launch_.rank, launch_.size, launch_.local_size});
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
  launch_.present = true;
  launch_.rank = bootstrap_->process();
  launch_.size = bootstrap_->processes();
  set_local(launch_, bootstrap_->hosts());
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
    bootstrap_ = meet();
    set_local(launch_, bootstrap_->hosts());
  }
  return *bootstrap_;
}

std::unique_ptr<collectives::Bootstrap> Session::meet() {
  switch (launch_.meeting) {
    case Launch::Meeting::kNone:
      break;
    case Launch::Meeting::kMpi: {
      auto job = collectives::mpi::open({options_.deadline});
      // A launcher of another MPI leaves each process alone.
      engine::require(job->processes() == launch_.size,
                      "{} started {} processes, and MPI joined {} of them: use the launcher of the "
                      "MPI that lockstep was built with (lockstep doctor names it)",
                      launch_.launcher, launch_.size, job->processes());
      return job;
    }
    case Launch::Meeting::kRendezvous:
    case Launch::Meeting::kPmi:
    case Launch::Meeting::kTorchStore:
      return collectives::tcp_bootstrap(
          {.process = launch_.rank,
           .processes = launch_.size,
           .rendezvous = launch_.rendezvous,
           .announce = announcer(launch_, start_deadline(options_.deadline)),
           .interface = options_.network.interface,
           .key = job_key(launch_, options_.insecure),
           .start_deadline = start_deadline(options_.deadline),
           .deadline = options_.deadline});
  }
  return collectives::single_process();
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
  if (several_hosts && launch_.launcher == "mpirun" && !missing.empty())
    log().warning("{}", missing);
}

}  // namespace lockstep::strategies
