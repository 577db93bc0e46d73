// SPDX-License-Identifier: MIT
#include "tools/chief_files.h"

#include <string>

#include "engine/base/error.h"
#include "tools/exit_codes.h"
#include "tools/leaving.h"

namespace lockstep::tools {

void open_chief_files(strategies::Session& session, const std::function<void()>& open) {
  const bool several = session.launch().size > 1;
  std::string wrong;
  try {
    open();
  } catch (const engine::Error& error) {
    wrong = message(error);
  }
  if (several) wrong = session.bootstrap().all_gather(wrong, "files of the chief")[0];
  if (wrong.empty()) return;
  // The second exchange is for processes that still watch the start: they must not see the chief
  // leave and report that instead.
  session.connected();
  if (several) session.bootstrap().all_gather("", "files of the chief");
  leave_together(exit_code(engine::Code::kIo), wrong);
}

}  // namespace lockstep::tools
