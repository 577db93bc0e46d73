// SPDX-License-Identifier: MIT
#include "strategies/session/announcer.h"

#include <cstdlib>
#include <string>

#include "strategies/launchers/pmi.h"
#include "strategies/launchers/torch_store.h"

namespace lockstep::strategies {

using collectives::Announcement;

std::function<Announcement(const Announcement&)> announcer(const Launch& launch,
                                                           std::chrono::milliseconds deadline) {
  const bool first = launch.rank == 0;
  if (launch.meeting == Launch::Meeting::kPmi)
    return [first, deadline](const Announcement& mine) {
      const char* const file = std::getenv("PMI_FD");
      const std::string text =
          pmi::from_first(std::atoi(file == nullptr ? "-1" : file), first,
                          mine.address + "/" + mine.secret, engine::Clock::now() + deadline);
      const std::size_t end = text.find('/');
      if (end == std::string::npos)
        engine::fail(engine::Code::kIo, "PMI: '{}' is no address of process 0", text);
      return Announcement{text.substr(0, end), text.substr(end + 1)};
    };
  if (launch.meeting == Launch::Meeting::kTorchStore)
    return [launch, first, deadline](const Announcement& mine) {
      return Announcement{
          torch_store::from_first(launch.rendezvous, "lockstep/" + launch.run, first, mine.address,
                                  engine::Clock::now() + deadline),
          {}};
    };
  return {};
}

}  // namespace lockstep::strategies
