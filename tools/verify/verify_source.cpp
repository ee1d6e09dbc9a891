#include "tools/verify/verify_source.h"

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "ckpt/integrity/verify.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/progress.h"

namespace ferry::tool {
namespace {

void check_source(const std::string& path, const std::string& iteration,
                  const EngineOptions& engine, bool progress, Masters masters) {
  const InterruptScope interrupt;
  ProgressLine line("verifying", progress);
  VerifyOptions options{iteration, masters, engine};
  options.values = false;  // the command that follows sees them
  options.engine.cancel = interrupt.flag();
  options.engine.progress = [&](const Progress& so_far) { line.show(so_far); };
  const VerifyReport report = verify(posix_file_system(), path, options);
  if (report.problems.empty()) return;
  fail(ErrorKind::corrupt, "{}: {}; nothing was written (`ferry verify` lists all of {})",
       report.path, report.problems.front().what, report.problems.size());
}

}  // namespace

void add_verify_option(Command& command, bool& verify) {
  command.add_flag("--verify", verify,
                   "Check PATH for damage first, as ferry verify does; reads it once more");
}

void verify_source(Group& group, const std::string& path, const std::string& iteration,
                   const EngineOptions& options, bool progress, Masters masters) {
  together(group, [&] {
    if (group.rank() == 0) check_source(path, iteration, options, progress, masters);
    return std::string();
  });
}

}  // namespace ferry::tool
