#include "ckpt/integrity/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ckpt/base/error.h"
#include "ckpt/base/name_list.h"
#include "ckpt/base/threads.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/hugging_face/hub_cache.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/integrity/checks/archive_checks.h"
#include "ckpt/integrity/checks/failures.h"
#include "ckpt/integrity/checks/manifest_checks.h"
#include "ckpt/integrity/manifest/folder_files.h"
#include "ckpt/integrity/run_choice.h"
#include "ckpt/io/staging/reader_lock.h"
#include "ckpt/megatron/optimizer/masters/compare.h"
#include "ckpt/megatron/optimizer/masters/passing.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

constexpr uint64_t kMostJsonBytes = uint64_t{64} << 20;

class Verification {
 public:
  Verification(std::shared_ptr<const FileSystem> file_system, const VerifyOptions& options)
      : file_system_(std::move(file_system)), options_(options) {}

  VerifyReport run(const std::string& path) {
    report_.path = path;
    const PathKind kind = file_system_->status(path).kind;
    if (kind == PathKind::folder) {
      find_checkpoint(path);
    } else if (!options_.iteration.empty()) {
      open_checkpoint(file_system_, path, {options_.iteration, false});  // says what is wrong
    }
    const ReaderLock mark(*file_system_, report_.path);
    find_files(kind);
    if (kind == PathKind::folder && options_.manifests) read_manifests();
    add_blobs();
    check_structure();
    const size_t before = report_.problems.size();
    check_bytes();
    if (refusal_) {  // where checksums are right it counts
      if (report_.problems.size() == before) throw Error(*refusal_);
      add_problem({}, refusal_->what());
    }
    report_uncovered();
    if (report_.problems.empty()) check_masters();
    mark.check();
    return std::move(report_);
  }

 private:
  void add_problem(const std::string& file, std::string what) {
    add_problems({{file, 0, 0, {}, std::move(what)}});
  }
  // The name of a file of the folder, relative to it.
  std::string name_of(const std::string& path) const {
    const std::string prefix = join(report_.path, "");
    return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
  }
  // What several readers find is reported once.
  void add_problems(std::vector<Problem> problems) {
    for (Problem& problem : problems) {
      if (reported_.insert(problem.what).second) report_.problems.push_back(std::move(problem));
    }
  }

  // As open_checkpoint() does, but of a run of Megatron-LM iterations that are unfinished, too.
  void find_checkpoint(const std::string& path) {
    if (auto lead = leads_to(*file_system_, path, options_.iteration)) {
      report_.path = std::move(lead->path);
      report_.notes = std::move(lead->notes);
      if (!options_.iteration.empty() && !lead->by_iteration) {
        open_checkpoint(file_system_, path, {options_.iteration, false});  // says what is wrong
      }
      if (file_system_->status(report_.path).kind == PathKind::folder &&
          is_run_folder(*file_system_, report_.path)) {
        choose_iteration_of(report_.path, {});
      }
    } else if (is_run_folder(*file_system_, path)) {
      choose_iteration_of(path, options_.iteration);
    } else if (!options_.iteration.empty()) {
      open_checkpoint(file_system_, path, {options_.iteration, false});  // says what is wrong
    }
    check_is_checkpoint();
  }

  void choose_iteration_of(const std::string& run, const std::string& iteration) {
    RunChoice choice = choose_to_verify(*file_system_, run, iteration);
    report_.path = join(run, choice.folder.name);
    report_.iteration = choice.folder.iteration;
    add_problems(std::move(choice.problems));
    report_.notes.insert(report_.notes.end(), choice.notes.begin(), choice.notes.end());
  }

  // A folder that was never a checkpoint is a wrong path, and not a damaged one: the error of who
  // opens it counts. What has a manifest, or data files, was one.
  void check_is_checkpoint() const {
    const std::string& path = report_.path;
    if (!report_.problems.empty() || is_checkpoint_folder(*file_system_, path)) return;
    const std::vector<std::string> names = file_system_->list(path);
    const bool was_one = std::ranges::any_of(names, [](const std::string& name) {
      return name == kManifestName || name == kSha256ManifestName || name.ends_with(".distcp");
    });
    if (!was_one) open_checkpoint(file_system_, path);
  }

  void find_files(PathKind kind) {
    if (kind == PathKind::folder) {
      FolderFiles found = files_below(*file_system_, report_.path, options_.engine.cancel);
      files_ = std::move(found.files);
      report_.notes.insert(report_.notes.end(), found.not_seen.begin(), found.not_seen.end());
    } else {
      files_.push_back({report_.path, file_system_->status(report_.path).bytes});
    }
    report_.files = static_cast<int64_t>(files_.size());
    for (const FileInfo& file : files_) report_.bytes += file.bytes;
  }

  // In a snapshot of Hugging Face's cache, the names of what its links lead to.
  void add_blobs() {
    for (uint32_t i = 0; i < files_.size(); ++i) {
      if (const auto hash = hub_sha256(*file_system_, files_[i].path)) {
        CheckOrigin origin;
        origin.blob = true;
        list_.add({i, 0, files_[i].bytes, *hash}, std::move(origin));
      }
    }
  }

  // Its own bytes are covered by its own digest, and it names no file for itself.
  void read_manifests() {
    read_list(kManifestName, kMostManifestBytes,
              [&](const std::string& text, const std::string& path) {
                manifest_ = parse_manifest(text, path);
                report_.has_manifest = true;
                own_bytes_ = text.size();
                take(checks_of(manifest_, report_.path, files_), {kManifestName}, kManifestName);
              });
    read_list(kSha256ManifestName, kMostJsonBytes,
              [&](const std::string& text, const std::string& path) {
                const Sha256Files hashes = parse_sha256_manifest(text, path);
                take(checks_of(hashes, report_.path, files_), {kManifestName, kSha256ManifestName},
                     kSha256ManifestName);
              });
  }

  template <typename Read>
  void read_list(const char* name, uint64_t most_bytes, const Read& read) {
    const std::string path = join(report_.path, name);
    if (file_system_->status(path).kind == PathKind::missing) return;
    try {
      read(read_file(*file_system_, path, most_bytes), path);
    } catch (const Error& error) {
      add_problem(name, error.what());
    }
  }

  void take(ManifestChecks checks, const std::vector<std::string>& exempt, const char* list_name) {
    list_.append(std::move(checks.list));
    add_problems(std::move(checks.problems));
    for (uint32_t number : checks.not_named) {
      const std::string name = name_of(files_[number].path);
      if (has_name(exempt, name)) continue;
      not_named_.push_back({files_[number].path, list_name});
    }
  }

  // What the readers check: of the checkpoint as people see it, and of the items as they are
  // stored.
  void check_structure() {
    std::optional<Checkpoint> seen = open(false);
    if (seen) {
      report_.format = name(seen->format);
      if (seen->iteration) report_.iteration = seen->iteration;
      for (const std::string& what : seen->damage) add_problem({}, what);
      if (!seen->optimizer_problem.empty()) seen->notes.push_back(seen->optimizer_problem);
      for (std::string& note : seen->notes) {
        if (!has_name(seen->damage, note)) report_.notes.push_back(std::move(note));
      }
      check_coverage(seen->catalog);
      seen_ = std::move(seen);
    }
    stored_ = open(true);
    if (!stored_) stored_ = open_items();
    add_members();
    const Catalog* stored = stored_ ? &*stored_->catalog : nullptr;
    archives_ = find_archives(stored, files_, *file_system_);
    ArchiveChecks checks =
        check_archives(stored, archives_, files_, *file_system_, options_.engine);
    list_.append(std::move(checks.list));
    for (Problem& problem : checks.problems) problem.file = name_of(problem.file);
    add_problems(std::move(checks.problems));
    report_.items = checks.tensors + checks.objects + checks.whole_files;
    if (checks.without_crc32 > 0) {
      report_.notes.push_back(
          fmt::format("{} archives have records without a CRC-32", checks.without_crc32));
    }
  }

  // The members of an archive that no manifest covers, whose records have checksums.
  void add_members() {
    if (!stored_ || stored_->catalog->file_system == file_system_ || report_.has_manifest) return;
    file_system_ = stored_->catalog->file_system;
    for (const FileInfo& file : stored_->catalog->files) {
      const bool known = std::ranges::any_of(
          files_, [&](const FileInfo& other) { return other.path == file.path; });
      if (!known) files_.push_back(file);
    }
  }

  std::optional<Checkpoint> open(bool raw) {
    try {
      return open_checkpoint(file_system_, report_.path, {{}, raw});
    } catch (const Error& error) {
      const bool damaged = error.kind() == ErrorKind::corrupt ||
                           error.kind() == ErrorKind::not_found ||
                           error.kind() == ErrorKind::mismatch || error.kind() == ErrorKind::io ||
                           report_.has_manifest;
      if (error.kind() == ErrorKind::cancelled) throw;
      // What cannot be read here may be a damaged name or number: checksums decide.
      if (damaged) {
        add_problem({}, error.what());
      } else if (!refusal_) {
        refusal_ = error;
      }
      return std::nullopt;
    }
  }

  // Where a checkpoint's meaning is damaged, its items may still be checked one by one.
  std::optional<Checkpoint> open_items() const {
    if (file_system_->status(join(report_.path, ".metadata")).kind != PathKind::file) return {};
    try {
      Checkpoint items;
      items.catalog = open_dcp(file_system_, report_.path).catalog;
      return items;
    } catch (const Error&) {
      return {};  // reported by open()
    }
  }

  void check_coverage(const Catalog& catalog) {
    for (const Entry& entry : catalog.entries) {
      try {
        check_chunks(catalog, entry);
        ++report_.tensors;
      } catch (const Error& error) {
        add_problems({{{}, 0, 0, "tensor " + entry.name, error.what()}});
      }
    }
    std::unordered_set<std::string_view> used;
    for (const FileInfo& file : catalog.files) used.insert(file.path);
    for (const auto& [path, list_name] : not_named_) {
      std::string what = fmt::format("{}: {} does not name it", path, list_name);
      if (used.contains(path)) {
        add_problem(name_of(path), std::move(what));
      } else {
        report_.notes.push_back(std::move(what));
      }
    }
  }

  void check_bytes() {
    for (const ByteCheck& check : list_.checks) {
      if (std::holds_alternative<Crc32>(check.expected)) ++report_.crc32s;
      if (std::holds_alternative<Digest>(check.expected)) ++report_.digests;
      if (std::holds_alternative<Sha256>(check.expected)) ++report_.sha256s;
    }
    report_.covered_bytes = covered_bytes(list_.checks) + own_bytes_;
    find_masters();
    const int threads = thread_count(options_.engine.threads);
    if (!pairs_.empty()) passing_.emplace(seen_->catalog, pairs_, files_, threads);
    if (options_.values && seen_) {
      values_.emplace(seen_->catalog, files_, threads);
      for (const ByteCheck& read : reads_of_uncovered(list_.checks, values_->ranges())) {
        list_.add(read);
      }
    }
    std::function<SeeBytes()> seer;
    if (passing_ || values_) seer = [this] { return reader(); };
    const auto failed = run_checks(*file_system_, files_, list_.checks, options_.engine, seer);
    if (values_) report_.non_finite = values_->found();
    if (std::string note = to_text(report_.non_finite); !note.empty()) {
      report_.notes.push_back(std::move(note));
    }
    add_problems(
        problems_of(list_, failed, files_, report_.path, stored_ ? &*stored_->catalog : nullptr));
  }

  SeeBytes reader() {
    SeeBytes masters = passing_ ? passing_->reader() : SeeBytes();
    if (!values_) return masters;
    return [masters = std::move(masters), values = values_->reader()](
               uint32_t file, uint64_t offset, std::span<const std::byte> bytes) {
      if (masters) masters(file, offset, bytes);
      values(file, offset, bytes);
    };
  }

  // None where there is damage: only sound tensors have known places of elements.
  void find_masters() {
    if (options_.masters == Masters::not_compared || !seen_ || !report_.problems.empty()) return;
    pairs_ = master_pairs(seen_->catalog);
    if (pairs_.empty()) return;
    for (const char* flag : {"fp8_param_gather", "fp8_param", "fp4_param_gather", "fp4_param"}) {
      if (!seen_->args.value.get(flag).boolean().value_or(false)) continue;
      report_.notes.push_back(
          "the run kept its weights in 8 bits or fewer, so that they are not its rounded fp32 "
          "master weights: they were not compared");
      pairs_.clear();
      return;
    }
  }

  // Damage was looked for before: what differs now was saved so. Pairs that were seen to agree when
  // their bytes passed by are not read once more.
  void check_masters() {
    if (pairs_.empty()) return;
    std::vector<MasterPair> unsure;
    for (const size_t i : passing_->not_seen_to_agree()) unsure.push_back(pairs_[i]);
    for (const MasterMismatch& mismatch :
         compare_masters(seen_->catalog, unsure, options_.engine)) {
      add_problems({{{}, 0, 0, "tensor " + mismatch.tensor, to_string(mismatch)}});
    }
    report_.masters = static_cast<int64_t>(pairs_.size());
    if (!report_.problems.empty() && !seen_->shifted_state.empty()) {
      report_.notes.push_back(seen_->shifted_state);
    }
  }

  void report_uncovered() {
    if (report_.covered_bytes >= report_.bytes) return;
    report_.notes.push_back(
        fmt::format("{} of {} bytes are under no checksum{}: whether they changed is unknown",
                    report_.bytes - report_.covered_bytes, report_.bytes,
                    report_.has_manifest ? "" : fmt::format(" (there is no {})", kManifestName)));
  }

  std::shared_ptr<const FileSystem> file_system_;
  const VerifyOptions& options_;
  VerifyReport report_;
  std::unordered_set<std::string> reported_;
  std::vector<FileInfo> files_;
  Manifest manifest_;
  uint64_t own_bytes_ = 0;                                      // of the manifest
  std::vector<std::pair<std::string, const char*>> not_named_;  // path, and the list
  std::optional<Checkpoint> seen_, stored_;
  std::optional<Error> refusal_;  // of what cannot be read here, or is damaged
  std::vector<Archive> archives_;
  std::vector<MasterPair> pairs_;  // to be held against each other, of seen_
  std::optional<PassingMasters> passing_;
  std::optional<PassingValues> values_;
  CheckList list_;
};

}  // namespace

VerifyReport verify(std::shared_ptr<const FileSystem> file_system, const std::string& given,
                    const VerifyOptions& options) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return with_paths({path}, [&] {
    if (file_system->status(path).kind == PathKind::missing) fail_missing(*file_system, path);
    return Verification(std::move(file_system), options).run(path);
  });
}

}  // namespace ferry
