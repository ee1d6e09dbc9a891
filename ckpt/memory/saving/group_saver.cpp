#include "ckpt/memory/saving/group_saver.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_metadata_writer.h"
#include "ckpt/group/group.h"
#include "ckpt/group/group_run.h"
#include "ckpt/group/wire.h"
#include "ckpt/integrity/checks/small_files.h"
#include "ckpt/integrity/manifest/plan_manifest.h"
#include "ckpt/integrity/soundness.h"
#include "ckpt/memory/save.h"
#include "ckpt/memory/saving/own_files.h"
#include "ckpt/memory/snapshot_format.h"
#include "ckpt/store/prune.h"
#include "ckpt/store/run_store.h"

namespace ferry {
namespace {

// Saves of formats whose files combine the memory of several ranks.

void check_no_objects(const Snapshot& own) {
  if (own.objects.empty()) return;
  fail(ErrorKind::invalid, "{}: this format has no place for the caller's own objects",
       own.objects.front().name);
}

// The places of what is written: what ranks must agree on.
std::string places_in(const Plan& plan) {
  Packer packer;
  for (const FileInfo& file : plan.target.files) packer.text(file.path).number(file.bytes);
  for (const Entry& entry : plan.target.entries) {
    packer.text(entry.name).choice(entry.dtype);
    for (const Chunk& chunk : entry.chunks) {
      packer.number(static_cast<uint64_t>(chunk.rank)).number(chunk.extent.file);
      packer.number(chunk.extent.offset).number(chunk.extent.length);
    }
  }
  return packer.take();
}

void check_ranks(const Plan& plan, int ranks) {
  for (const Entry& entry : plan.target.entries) {
    for (const Chunk& chunk : entry.chunks) {
      if (chunk.rank >= 0 && chunk.rank < ranks) continue;
      fail(ErrorKind::mismatch,
           "{} is for rank {} of the layout that the arguments name, and {} ranks save", entry.name,
           chunk.rank, ranks);
    }
  }
}

// As save(), by all ranks of the group: each plans all files and writes what it holds of them.
std::vector<std::string> save_common_files(const FileSystem& file_system, const RunStore& store,
                                           const Snapshot& own, const CommonFilesFormat& format,
                                           Group& group, const SaveOptions& options) {
  PlannedOutput planned;
  const std::vector<std::string> places = together(group, [&] {
    check_no_objects(own);
    planned = format.plan(catalog_of(own.tensors), own.iteration);
    check_ranks(planned.plan, group.size());
    if (options.integrity.manifest) complete_items(planned.plan);
    if (group.rank() == 0) check(planned.plan);
    const std::string text = places_in(planned.plan);
    return Packer().digest(digest_of(std::as_bytes(std::span(text)))).take();
  });
  for (size_t rank = 1; rank < places.size(); ++rank) {
    if (places[rank] == places[0]) continue;
    throw SharedError(ErrorKind::mismatch,
                      fmt::format("rank {} saves a run of another layout than rank 0", rank));
  }
  std::optional<StagedIteration> staged;  // on rank 0
  const std::string folder = from_first_together(group, [&] {
    staged = store.begin(own.iteration, options.begin);
    create_inner_folders(planned, file_system, staged->path());
    return staged->path();
  });
  const std::vector<Digest> digests =
      run_by_ranks(planned.plan, file_system, folder, group, options.engine);
  from_first_together(group, [&] {
    write_small_files(planned, digests, options.integrity, file_system, folder, options.engine);
    if (options.engine.cancel && *options.engine.cancel) {
      fail(ErrorKind::cancelled, "stopped on request");
    }
    staged->commit();
    return std::string();
  });
  return staged ? staged->notes() : std::vector<std::string>();
}

// What rank 0 learns of a contribution.
std::string pack(const Contribution& own) {
  Packer packer;
  packer.number(own.ended).number(own.stopped).number(static_cast<uint64_t>(own.iteration));
  return packer.text(own.problem).choice(own.problem_kind).take();
}

Contribution unpack_contribution(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Contribution contribution;
  contribution.ended = unpacker.number() != 0;
  contribution.stopped = unpacker.number() != 0;
  contribution.iteration = static_cast<int64_t>(unpacker.number());
  contribution.problem = unpacker.text();
  contribution.problem_kind = unpacker.error_kind();
  return contribution;
}

// What a rank itself says comes before what it does not share with the others.
void find_problem(const std::vector<Contribution>& ranks, Round& round) {
  const auto set = [&](size_t rank, ErrorKind kind, const std::string& problem) {
    if (!round.problem.empty()) return;
    round.problem = ranks.size() > 1 ? fmt::format("rank {}: {}", rank, problem) : problem;
    round.problem_kind = kind;
  };
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!ranks[i].problem.empty()) set(i, ranks[i].problem_kind, ranks[i].problem);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Contribution& rank = ranks[i];
    if (rank.ended && rank.stopped) {
      set(i, ErrorKind::cancelled, "its saver was stopped before");
    } else if (rank.ended) {
      set(i, ErrorKind::mismatch, "its saver ended before");
    } else if (rank.iteration != round.iteration) {
      set(i, ErrorKind::mismatch, fmt::format("it saves iteration {} next", rank.iteration));
    }
  }
}

Round round_of(const std::vector<Contribution>& ranks) {
  Round round;
  round.is_over = std::ranges::all_of(ranks, &Contribution::ended);
  round.is_stopped = std::ranges::any_of(ranks, &Contribution::stopped);
  round.iteration = INT64_MAX;
  for (const Contribution& rank : ranks) {
    if (!rank.ended) round.iteration = std::min(round.iteration, rank.iteration);
  }
  if (!round.is_over) find_problem(ranks, round);
  return round;
}

std::string pack(const Round& round) {
  Packer packer;
  packer.number(static_cast<uint64_t>(round.iteration)).number(round.is_over);
  packer.number(round.is_stopped).text(round.problem).choice(round.problem_kind);
  return packer.take();
}

Round unpack_round(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Round round;
  round.iteration = static_cast<int64_t>(unpacker.number());
  round.is_over = unpacker.number() != 0;
  round.is_stopped = unpacker.number() != 0;
  round.problem = unpacker.text();
  round.problem_kind = unpacker.error_kind();
  return round;
}

// Removes what is not kept; the iteration that was saved is good in any case.
void remove_old(const std::shared_ptr<const FileSystem>& file_system, const std::string& run,
                const Retention& keep, std::vector<std::string>& notes) {
  if (!keep.keep_last && !keep.keep_every) return;
  PruneOptions options;
  options.checks.problem_of = [&](const std::string& folder) {
    return problem_by_structure(file_system, folder);
  };
  try {
    const PruneReport report = prune(file_system, run, keep, options);
    notes.insert(notes.end(), report.notes.begin(), report.notes.end());
  } catch (const Error& error) {
    notes.push_back(fmt::format("old iterations of {} stay: {}", run, error.what()));
  }
}

Digest digest_of_text(std::string_view text) { return digest_of(std::as_bytes(std::span(text))); }

}  // namespace

void Round::check() const {
  if (!problem.empty()) throw SharedError(problem_kind, problem);
}

Contribution contribution_of(Snapshot snapshot) {
  try {
    if (snapshot.iteration < 0) {
      fail(ErrorKind::invalid, "{} is not an iteration; the first is 0", snapshot.iteration);
    }
    if (!snapshot.format) fail(ErrorKind::invalid, "the snapshot has no format");
    for (const ConstRegion& region : snapshot.tensors) checked_bytes(region);
  } catch (const Error& error) {
    return failed_contribution(snapshot.iteration, error);
  }
  Contribution contribution;
  contribution.iteration = snapshot.iteration;
  contribution.snapshot = std::move(snapshot);
  return contribution;
}

Contribution failed_contribution(int64_t iteration, const Error& error) {
  Contribution contribution;
  contribution.iteration = iteration;
  contribution.problem = error.what();
  contribution.problem_kind = error.kind();
  return contribution;
}

GroupSaver::GroupSaver(std::shared_ptr<const FileSystem> file_system, std::string run_folder,
                       Group& group, SaveOptions options)
    : file_system_(std::move(file_system)),
      run_folder_(std::move(run_folder)),
      store_(file_system_, run_folder_),
      group_(group),
      options_(std::move(options)) {}

Round GroupSaver::agree(const Contribution& own) {
  const std::vector<std::string> all = group_.gather(pack(own));
  std::string round;
  if (leads()) {
    std::vector<Contribution> ranks;
    ranks.reserve(all.size());
    for (const std::string& bytes : all) ranks.push_back(unpack_contribution(bytes));
    round = pack(round_of(ranks));
  }
  return unpack_round(group_.broadcast(std::move(round)));
}

std::vector<std::string> GroupSaver::save(const Round& round, const Snapshot& own,
                                          const BorrowedSources* borrowed) {
  SaveOptions options = options_;
  options.engine.borrowed = borrowed;
  std::vector<std::string> notes;
  if (const auto* format = dynamic_cast<const CommonFilesFormat*>(own.format.get())) {
    notes = save_common_files(*file_system_, store_, own, *format, group_, options);
  } else {
    notes = save_own_files(own, dynamic_cast<const OwnFilesFormat&>(*own.format), round.iteration,
                           options.engine);
  }
  if (leads()) remove_old(file_system_, run_folder_, options_.keep, notes);
  return notes;
}

std::vector<std::string> GroupSaver::save_own_files(const Snapshot& own,
                                                    const OwnFilesFormat& format, int64_t iteration,
                                                    const EngineOptions& engine) {
  std::optional<OwnFiles> files;
  std::string description;
  const std::vector<std::string> digests = gather_together(group_, [&] {
    files.emplace(own.tensors, own.objects, format, iteration, group_.rank());
    description = files->description();
    return Packer().digest(digest_of_text(description)).take();
  });
  std::vector<Digest> now;
  for (const std::string& bytes : digests) now.push_back(Unpacker(bytes).digest());
  const bool is_known = group_.broadcast(shards_ && now == known_ ? "known" : "") == "known";
  if (!is_known) {
    agree_on_shards(description);
    known_ = std::move(now);
  }
  std::optional<StagedIteration> staged;  // on rank 0
  const std::string folder = from_first_together(group_, [&] {
    staged = store_.begin(iteration, options_.begin);
    return staged->path();
  });
  const std::vector<std::string> places = gather_together(group_, [&] {
    files->plan(chosen_, options_.files_per_rank);
    return files->write(*file_system_, folder, engine);
  });
  from_first_together(group_, [&] { return commit(format, places, *staged, iteration); });
  return staged ? staged->notes() : std::vector<std::string>();
}

// Which boxes each rank writes.
void GroupSaver::agree_on_shards(const std::string& description) {
  shards_.reset();
  const std::vector<std::string> descriptions = group_.gather(description);
  chosen_ = scatter_together(group_, [&] {
    shards_.emplace(descriptions);
    return shards_->chosen();
  });
}

std::string GroupSaver::commit(const OwnFilesFormat& format, const std::vector<std::string>& places,
                               StagedIteration& staged, int64_t iteration) {
  shards_->set_places(places);
  OwnFilesFormat::SmallFiles small_files = format.complete(shards_->content(), iteration);
  small_files.emplace(small_files.begin(), ".metadata",
                      write_dcp_metadata_with_id(shards_->content()));
  write_small_files(small_files, std::move(shards_->manifest()), options_.integrity, *file_system_,
                    staged.path(), options_.engine);
  if (options_.engine.cancel && *options_.engine.cancel) {
    fail(ErrorKind::cancelled, "stopped on request");
  }
  staged.commit();
  return {};
}

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
