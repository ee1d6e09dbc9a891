#include "ckpt/group/group_run.h"

#include <algorithm>
#include <optional>

#include "ckpt/core/item_index.h"
#include "ckpt/core/plan_part.h"
#include "ckpt/engine/run.h"
#include "ckpt/engine/target_files.h"
#include "ckpt/group/group.h"

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

// Created by rank 0, with what comes from no source.
void open_files(const Plan& plan, const FileSystem& file_system, const std::string& folder,
                Group& group, const EngineOptions& options, std::optional<TargetFiles>& files) {
  together(group, [&] {
    const TargetMode mode = group.rank() == 0 ? TargetMode::create : TargetMode::open;
    files.emplace(plan, file_system, folder, mode, options);
    if (group.rank() != 0) return std::string();
    for (const Literal& literal : plan.literals) {
      files->files()[literal.file]->write(literal.offset, std::as_bytes(std::span(literal.bytes)));
    }
    return std::string();
  });
}

std::vector<uint32_t> owners_of(const Plan& plan) {
  std::vector<uint32_t> owners;
  for (const Item& item : plan.items) owners.push_back(static_cast<uint32_t>(item.rank));
  return owners;
}

// By item: whether another rank than the item's own writes a part of it.
std::vector<bool> items_of_several(const Plan& plan) {
  const ItemIndex index(plan.items);
  std::vector<bool> of_several(plan.items.size());
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      const Extent& extent = chunk.extent;
      if (extent.length == 0) continue;
      const auto item = index.find(extent.file, extent.offset, extent.length);
      if (item && plan.items[*item].rank != chunk.rank) of_several[*item] = true;
    }
  }
  return of_several;
}

// The items of one rank that several write, without what is written there.
Plan read_back_of(const Plan& plan, const std::vector<bool>& of_several, int64_t rank) {
  Plan items;
  items.source = plan.source;
  items.target.files = plan.target.files;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (of_several[i] && plan.items[i].rank == rank) items.items.push_back(plan.items[i]);
  }
  return items;
}

// What a rank writes, with the items that nobody else writes to.
Plan own_part_of(const Plan& plan, const std::vector<bool>& of_several, int64_t rank) {
  Plan part = part_of(plan, rank);
  part.items.clear();
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (!of_several[i] && plan.items[i].rank == rank) part.items.push_back(plan.items[i]);
  }
  return part;
}

// Both by rising position among a rank's items.
std::vector<Digest> merged(const Plan& plan, const std::vector<bool>& of_several, int64_t rank,
                           const std::vector<Digest>& written, const std::vector<Digest>& read) {
  std::vector<Digest> digests;
  auto next_written = written.begin(), next_read = read.begin();
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (plan.items[i].rank != rank) continue;
    digests.push_back(of_several[i] ? *next_read++ : *next_written++);
  }
  return digests;
}

}  // namespace

std::vector<Digest> run_together(const Plan& plan, const FileSystem& file_system,
                                 const std::string& folder, Group& group,
                                 const EngineOptions& options) {
  if (group.size() == 1) return run(plan, file_system, folder, options);
  std::optional<TargetFiles> files;
  open_files(plan, file_system, folder, group, options, files);
  Plan shared = plan;
  share_out(shared, group.size());
  return digests_together(group, owners_of(shared), [&] {
    return run_share(part_of(shared, group.rank()), file_system, folder, *files, options);
  });
}

std::vector<Digest> run_by_ranks(const Plan& plan, const FileSystem& file_system,
                                 const std::string& folder, Group& group,
                                 const EngineOptions& options) {
  const int own = group.rank();
  const std::vector<bool> of_several = items_of_several(plan);
  Plan part;
  together(group, [&] {
    part = own_part_of(plan, of_several, own);
    check_part(part);
    return std::string();
  });
  std::optional<TargetFiles> files;
  open_files(plan, file_system, folder, group, options, files);
  std::vector<Digest> written;
  together(group, [&] {
    written = run_share(part, file_system, folder, *files, options);
    return std::string();
  });
  return digests_together(group, owners_of(plan), [&] {
    const Plan common = read_back_of(plan, of_several, own);
    EngineOptions quiet = options;
    quiet.progress = {};
    quiet.borrowed = nullptr;
    const std::vector<Digest> read = run(common, files->files(), quiet);
    files->sync();  // the CRC-32s that were put in place
    return merged(plan, of_several, own, written, read);
  });
}

}  // namespace ferry
