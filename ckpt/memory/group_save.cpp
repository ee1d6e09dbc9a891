#include "ckpt/memory/group_save.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/core/plan_part.h"
#include "ckpt/group/together.h"
#include "ckpt/group/wire.h"
#include "ckpt/integrity/plan_manifest.h"

namespace ferry {
namespace {

// What tells one plan from another: formats write where all is into their small files.
Digest digest_of_plan(const PlannedOutput& planned) {
  DigestStream stream;
  const auto add = [&](std::string_view text) { stream.add(std::as_bytes(std::span(text))); };
  for (const FileInfo& file : planned.plan.target.files) add(file.path);
  for (const auto& [name, content] : planned.small_files) add(name), add(content);
  return stream.digest();
}

class GroupSave {
 public:
  GroupSave(std::shared_ptr<const FileSystem> file_system, const std::string& run_folder,
            const Round& round, const SnapshotPlanner& planner, Group& group,
            const SaveOptions& options)
      : file_system_(std::move(file_system)),
        store_(file_system_, run_folder),
        round_(round),
        planner_(planner),
        group_(group),
        options_(options) {}

  std::vector<std::string> run() {
    begin();
    write();
    together(group_, [&] { return is_first() ? commit() : std::string(); });
    return is_first() ? staged_->notes() : std::vector<std::string>();
  }

 private:
  bool is_first() const { return group_.rank() == 0; }

  void begin() {
    const std::vector<std::string> begun = together(group_, [&] {
      plan();
      if (is_first()) staged_ = store_.begin(round_.iteration, options_.begin);
      const Digest digest = digest_of_plan(planned_);
      return Packer()
          .number(digest.high)
          .number(digest.low)
          .text(is_first() ? staged_->path() : "")
          .take();
    });
    constexpr size_t kDigestBytes = 16;
    for (size_t rank = 1; rank < begun.size(); ++rank) {
      if (begun[rank].compare(0, kDigestBytes, begun[0], 0, kDigestBytes) == 0) continue;
      fail(ErrorKind::mismatch,
           "ranks 0 and {} plan iteration {} differently: their snapshots need the same planner",
           rank, round_.iteration);
    }
    Unpacker first(begun[0]);
    first.number(), first.number();
    folder_ = first.text();
  }

  void plan() {
    memory_ = std::make_unique<GatheredMemory>(round_.ranks);
    GatheredState state = memory_->state();
    state.files_per_rank = options_.files_per_rank;
    planned_ = planner_(std::move(state));
    const Plan& plan = planned_.plan;
    if (planned_.file_ranks.empty()) planned_.file_ranks.assign(plan.target.files.size(), 0);
    for (const int64_t rank : planned_.file_ranks) {
      if (rank >= 0 && rank < group_.size()) continue;
      fail(ErrorKind::invalid, "the plan has files of rank {}, and the group {} ranks", rank,
           group_.size());
    }
    if (options_.vouchers.manifest) complete_items(planned_.plan);
    check(plan);
  }

  void write() {
    std::vector<bool> wanted;
    for (const int64_t rank : planned_.file_ranks) wanted.push_back(rank == group_.rank());
    std::vector<uint32_t> owners;
    for (const Item& item : planned_.plan.items) {
      owners.push_back(static_cast<uint32_t>(planned_.file_ranks[item.file]));
    }
    digests_ = digests_together(group_, owners, [&] {
      return ferry::run(part_of(planned_.plan, wanted), *file_system_, folder_, options_.engine);
    });
  }

  std::string commit() {
    write_small_files(planned_, digests_, options_.vouchers, *file_system_, folder_,
                      options_.engine);
    if (options_.engine.cancel && *options_.engine.cancel) {
      fail(ErrorKind::cancelled, "stopped on request");
    }
    staged_->commit();
    return {};
  }

  std::shared_ptr<const FileSystem> file_system_;
  RunStore store_;
  const Round& round_;
  const SnapshotPlanner& planner_;
  Group& group_;
  const SaveOptions& options_;
  std::unique_ptr<GatheredMemory> memory_;
  PlannedOutput planned_;
  std::optional<StagedIteration> staged_;  // on rank 0
  std::string folder_;                     // into which all write
  std::vector<Digest> digests_;            // of all items
};

}  // namespace

bool Round::is_over() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const Contribution& c) { return c.ended; });
}

bool Round::is_stopped() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const Contribution& c) { return c.stopped; });
}

namespace {

// What a rank itself says comes before what it does not share with the others.
void find_problem(Round& round) {
  const auto set = [&](size_t rank, ErrorKind kind, const std::string& problem) {
    if (!round.problem.empty()) return;
    round.problem = round.ranks.size() > 1 ? fmt::format("rank {}: {}", rank, problem) : problem;
    round.problem_kind = kind;
  };
  for (size_t i = 0; i < round.ranks.size(); ++i) {
    const Contribution& rank = round.ranks[i];
    if (!rank.problem.empty()) set(i, rank.problem_kind, rank.problem);
  }
  for (size_t i = 0; i < round.ranks.size(); ++i) {
    const Contribution& rank = round.ranks[i];
    if (rank.ended && rank.stopped) {
      set(i, ErrorKind::cancelled, "its saver was stopped before");
    } else if (rank.ended) {
      set(i, ErrorKind::mismatch, "its saver ended before");
    } else if (rank.iteration != round.iteration) {
      set(i, ErrorKind::mismatch, fmt::format("it saves iteration {} next", rank.iteration));
    }
  }
}

}  // namespace

Round meet(Group& group, const Contribution& own) {
  Round round;
  const std::vector<std::string> all = group.exchange(pack(own));
  for (const std::string& bytes : all) round.ranks.push_back(unpack_contribution(bytes));
  round.ranks[static_cast<size_t>(group.rank())] = own;
  round.iteration = INT64_MAX;
  for (const Contribution& rank : round.ranks) {
    if (!rank.ended) round.iteration = std::min(round.iteration, rank.iteration);
  }
  if (!round.is_over()) find_problem(round);
  return round;
}

void Round::check() const {
  if (!problem.empty()) fail(problem_kind, "{}", problem);
}

std::vector<std::string> save_round(const std::shared_ptr<const FileSystem>& file_system,
                                    const std::string& run_folder, const Round& round,
                                    const SnapshotPlanner& planner, Group& group,
                                    const SaveOptions& options) {
  return GroupSave(file_system, run_folder, round, planner, group, options).run();
}

Contribution contribution_of(const Snapshot& snapshot) {
  try {
    if (snapshot.iteration < 0) {
      fail(ErrorKind::invalid, "{} is no iteration; the first is 0", snapshot.iteration);
    }
    if (!snapshot.planner) fail(ErrorKind::invalid, "the snapshot has no planner");
    for (const ConstRegion& region : snapshot.tensors) checked_bytes(region);
  } catch (const Error& error) {
    return failed_contribution(snapshot.iteration, error);
  }
  Contribution contribution;
  contribution.iteration = snapshot.iteration;
  contribution.tensors = snapshot.tensors;
  contribution.objects = snapshot.objects;
  return contribution;
}

Contribution failed_contribution(int64_t iteration, const Error& error) {
  Contribution contribution;
  contribution.iteration = iteration;
  contribution.problem = error.what();
  contribution.problem_kind = error.kind();
  return contribution;
}

}  // namespace ferry
