// SPDX-License-Identifier: MIT
#include "engine/cuda/gpu_links.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fstream>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/context.h"

namespace lockstep::engine::cuda {
namespace {

// More links than any GPU has. The library rejects indices that a GPU does not have.
constexpr unsigned kMostLinks = 36;

// Identifies a device by its parts of a PCI address, such as "0000:3b:00.0".
struct Place {
  unsigned domain = 0, bus = 0, device = 0;
  bool operator==(const Place&) const = default;
};

Place pci_place(std::string_view bus_id) {
  const auto next = [&bus_id] {
    unsigned number = 0;
    const char* const end = bus_id.data() + bus_id.size();
    const auto [rest, error] = std::from_chars(bus_id.data(), end, number, 16);
    bus_id = {rest == end ? rest : rest + 1, end};
    return number;
  };
  const unsigned domain = next(), bus = next();
  return {domain, bus, next()};
}

// Returns the NUMA node of a PCI device. The kernel reports -1 on a machine without nodes.
std::optional<int> node_of(const std::filesystem::path& pci, std::string bus_id) {
  std::ranges::transform(bus_id, bus_id.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ifstream file(pci / bus_id / "numa_node");
  int node = -1;
  file >> node;
  return file && node >= 0 ? std::optional(node) : std::nullopt;
}

// Returns bytes per second, for two transfers per clock, which holds for all memory of these GPUs.
double memory_bandwidth(const Driver& driver, int index) {
  CUdevice device = 0;
  int kilohertz = 0, bits = 0;
  if (driver.device_get(&device, index) != CUDA_SUCCESS) return 0;
  const auto ask = [&](int& value, CUdevice_attribute which) {
    return driver.device_get_attribute(&value, which, device) == CUDA_SUCCESS;
  };
  if (!ask(kilohertz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) ||
      !ask(bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH))
    return 0;
  return 2e3 * kilohertz * bits / 8;
}

// Maps the library's enumeration, which also counts minor versions: 1.0, 2.0, 2.2, 3.0, 3.1, 4.0,
// 5.0, 6.0.
int generation_of(unsigned version) {
  static constexpr std::array<int, 9> kGenerations{0, 1, 2, 2, 3, 3, 4, 5, 6};
  return version < kGenerations.size() ? kGenerations[version] : 0;
}

struct Link {
  NvmlLinkEnd end = NvmlLinkEnd::kGpu;
  Place to;
  int generation = 0;
};

// Asks NVML about links. Starts it and shuts it down.
class Links {
 public:
  Links(const Nvml& nvml, std::string& note) : nvml_(nvml), note_(note) {
    started_ = worked(nvml_.init(), "NVML could not be started");
  }
  ~Links() {
    if (started_) nvml_.shutdown();
  }
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  void add(const GpuTopology::Gpu& gpu) {
    NvmlDevice handle = nullptr;
    if (started_ && !worked(nvml_.device_get_handle_by_pci_bus_id(gpu.bus_id.c_str(), &handle),
                            fmt::format("NVML does not know cuda:{}", gpu.index)))
      handle = nullptr;
    gpus_.push_back(
        {handle, pci_place(gpu.bus_id), handle ? links_of(handle) : std::vector<Link>()});
  }

  // Sets the link of the pair as far as NVML knows it.
  void find(GpuTopology::Pair& pair) {
    const Known &a = gpus_[pair.a], &b = gpus_[pair.b];
    if (!a.handle || !b.handle) return;
    if (linked(pair, a, b)) return;
    NvmlAncestor ancestor{};
    if (!worked(nvml_.device_get_topology_common_ancestor(a.handle, b.handle, &ancestor),
                "NVML does not tell where GPUs meet"))
      return;
    pair.link = ancestor <= NvmlAncestor::kSwitches ? GpuLink::kPcieSwitch
                : ancestor <= NvmlAncestor::kNode   ? GpuLink::kHostBridge
                                                    : GpuLink::kAcrossNodes;
  }

 private:
  struct Known {
    NvmlDevice handle = nullptr;
    Place place;
    std::vector<Link> links;
  };

  // Returns whether a call succeeded. Notes the first failure only.
  bool worked(NvmlResult result, const std::string& otherwise) {
    if (result == 0) return true;
    if (note_.empty()) note_ = fmt::format("{}: {}", otherwise, nvml_.error_string(result));
    return false;
  }

  std::vector<Link> links_of(NvmlDevice gpu) const {
    std::vector<Link> links;
    for (unsigned i = 0; i < kMostLinks; ++i) {
      std::uint32_t active = 0;
      Link link;
      NvmlPciInfo to;
      unsigned version = 0;
      if (nvml_.device_get_nvlink_state(gpu, i, &active) != 0 || active == 0) continue;
      if (nvml_.device_get_nvlink_remote_device_type(gpu, i, &link.end) != 0) continue;
      // This fails for a switch that another system owns.
      if (nvml_.device_get_nvlink_remote_pci_info(gpu, i, &to) == 0)
        link.to = {to.domain, to.bus, to.device};
      if (nvml_.device_get_nvlink_version(gpu, i, &version) == 0)
        link.generation = generation_of(version);
      links.push_back(link);
    }
    return links;
  }

  static bool linked(GpuTopology::Pair& pair, const Known& a, const Known& b) {
    const auto to_b = [&b](const Link& l) { return l.end == NvmlLinkEnd::kGpu && l.to == b.place; };
    const auto to_switch = [](const Link& l) { return l.end == NvmlLinkEnd::kSwitch; };
    const auto direct = std::ranges::count_if(a.links, to_b);
    const auto switched = std::min(std::ranges::count_if(a.links, to_switch),
                                   std::ranges::count_if(b.links, to_switch));
    if (direct == 0 && switched == 0) return false;
    pair.link = direct > 0 ? GpuLink::kNvlink : GpuLink::kNvswitch;
    pair.links = int(direct > 0 ? direct : switched);
    pair.generation = (direct > 0 ? std::ranges::find_if(a.links, to_b)
                                  : std::ranges::find_if(a.links, to_switch))
                          ->generation;
    return true;
  }

  const Nvml& nvml_;
  std::string& note_;
  bool started_ = false;
  std::vector<Known> gpus_;
};

// Sets what the driver knows of the path.
void ask_driver(const Driver& driver, const GpuTopology& topology, GpuTopology::Pair& pair) {
  const auto device = [&](std::size_t gpu) {
    CUdevice found = 0;
    check(driver, driver.device_get(&found, topology.gpus[gpu].index), "driver", "cuDeviceGet");
    return found;
  };
  const CUdevice a = device(pair.a), b = device(pair.b);
  const auto ask = [&](CUdevice_P2PAttribute which, CUdevice from, CUdevice to) {
    int value = 0;
    check(driver, driver.device_get_p2p_attribute(&value, which, from, to), "driver",
          "cuDeviceGetP2PAttribute");
    return value;
  };
  pair.reach = ask(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b) != 0 &&
               ask(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, b, a) != 0;
  pair.rank = ask(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, a, b);
}

std::vector<GpuTopology::Gpu> usable(const Driver& driver, const std::filesystem::path& pci) {
  std::vector<GpuTopology::Gpu> gpus;
  for (int index = 0; index < device_count(driver); ++index) {
    try {
      const GpuFacts facts = facts_of(driver, index);
      gpus.push_back({.index = index,
                      .bus_id = facts.bus_id,
                      .numa_node = node_of(pci, facts.bus_id),
                      .memory_bandwidth = memory_bandwidth(driver, index)});
    } catch (const Error& error) {
      if (error.code() != Code::kDevice) throw;  // too old; cuda_findings gives the reason
    }
  }
  return gpus;
}

}  // namespace

GpuTopology gpu_links(const Driver& driver, const Nvml* nvml, const std::string& why_none,
                      const std::filesystem::path& pci) {
  GpuTopology topology;
  topology.gpus = usable(driver, pci);
  if (topology.gpus.size() < 2) return topology;
  std::optional<Links> links;
  if (nvml == nullptr) {
    topology.note = why_none;
  } else {
    links.emplace(*nvml, topology.note);
    for (const GpuTopology::Gpu& gpu : topology.gpus) links->add(gpu);
  }
  for (std::size_t a = 0; a < topology.gpus.size(); ++a) {
    for (std::size_t b = a + 1; b < topology.gpus.size(); ++b) {
      GpuTopology::Pair pair{.a = a, .b = b};
      ask_driver(driver, topology, pair);
      if (pci_place(topology.gpus[a].bus_id) == pci_place(topology.gpus[b].bus_id)) {
        pair.link = GpuLink::kSame;
      } else if (links) {
        links->find(pair);
      }
      topology.pairs.push_back(pair);
    }
  }
  return topology;
}

}  // namespace lockstep::engine::cuda
