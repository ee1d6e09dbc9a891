#include "ops/prune.h"

#include "ckpt/base/error.h"
#include "ckpt/integrity/soundness.h"
#include "ckpt/store/prune.h"

namespace ferry {

PruneReport prune(const std::string& run, const PruneRunOptions& options) {
  const std::shared_ptr<const FileSystem> file_system = posix_file_system();
  PruneOptions removal;
  removal.dry_run = options.dry_run;
  removal.progress = options.progress;
  removal.cancel = options.cancel;
  removal.checks.problem_of = [&](const std::string& folder) {
    if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
    return problem_by_structure(file_system, folder);
  };
  if (options.verify) {
    removal.checks.problem_of_last = [&](const std::string& folder) {
      EngineOptions engine;
      engine.cancel = options.cancel;
      engine.progress = options.verify_progress;
      return problem_by_bytes(file_system, folder, engine);
    };
  }
  return with_paths({run}, [&] { return prune(file_system, run, options.keep, removal); });
}

}  // namespace ferry
