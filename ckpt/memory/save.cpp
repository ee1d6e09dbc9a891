#include "ckpt/memory/save.h"

#include "ckpt/group/together.h"
#include "ckpt/memory/saving/group_saver.h"

namespace ferry {

std::vector<std::string> save(std::shared_ptr<const FileSystem> file_system,
                              const std::string& run_folder, const Snapshot& snapshot, Group& group,
                              const SaveOptions& options) {
  return or_abort(group, [&] {
    GroupSaver saver(std::move(file_system), run_folder, group, options);
    const Round round = saver.agree(contribution_of(snapshot));
    round.check();
    return saver.save(round, snapshot);
  });
}

}  // namespace ferry
