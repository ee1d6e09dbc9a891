#include "ckpt/group/group_run.h"

#include <algorithm>
#include <optional>

#include "ckpt/core/plan_part.h"
#include "ckpt/engine/target_files.h"
#include "ckpt/group/together.h"

namespace ferry {
namespace {

// Says how far all are by how far this rank is with its share.
EngineOptions with_scaled_progress(const EngineOptions& options, const Plan& share) {
  EngineOptions scaled = options;
  if (!options.progress) return scaled;
  uint64_t own = 0;
  for (const Entry& entry : share.target.entries) {
    for (const Chunk& chunk : entry.chunks) own += chunk.extent.length;
  }
  scaled.progress = [show = options.progress, own](const Progress& progress) {
    const double done =
        own == 0 ? 1 : static_cast<double>(progress.bytes_done) / static_cast<double>(own);
    const auto total = static_cast<double>(progress.bytes_total);
    show({static_cast<uint64_t>(std::min(done, 1.0) * total), progress.bytes_total});
  };
  return scaled;
}

std::vector<Digest> run_share(const Plan& share, const FileSystem& file_system,
                              const std::string& folder, TargetFiles& files,
                              const EngineOptions& options) {
  std::vector<Digest> digests =
      run(share, files.files(), file_system, folder, with_scaled_progress(options, share));
  files.sync();
  return digests;
}

}  // namespace

std::vector<Digest> run_together(const Plan& plan, const FileSystem& file_system,
                                 const std::string& folder, Group& group,
                                 const EngineOptions& options) {
  if (group.size() == 1) return run(plan, file_system, folder, options);
  const int own = group.rank();
  std::optional<TargetFiles> files;
  together(group, [&] {
    const TargetMode mode = own == 0 ? TargetMode::create : TargetMode::open;
    files.emplace(plan, file_system, folder, mode, options);
    if (own != 0) return std::string();
    for (const Literal& literal : plan.literals) {
      files->files()[literal.file]->write(literal.offset, std::as_bytes(std::span(literal.bytes)));
    }
    return std::string();
  });
  Plan shared = plan;
  share_out(shared, group.size());
  std::vector<uint32_t> owners;
  for (const Item& item : shared.items) owners.push_back(static_cast<uint32_t>(item.rank));
  return digests_together(group, owners, [&] {
    return run_share(part_of(shared, own), file_system, folder, *files, options);
  });
}

}  // namespace ferry
