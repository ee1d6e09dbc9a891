#include "ckpt/memory/save.h"

#include "ckpt/memory/group_save.h"

namespace ferry {

std::vector<std::string> save(std::shared_ptr<const FileSystem> file_system,
                              const std::string& run_folder, const Snapshot& snapshot, Group& group,
                              const SaveOptions& options) {
  const Round round = meet(group, contribution_of(snapshot));
  round.check();
  return save_round(file_system, run_folder, round, snapshot.planner, group, options);
}

}  // namespace ferry
