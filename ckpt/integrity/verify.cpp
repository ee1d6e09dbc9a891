#include "ckpt/integrity/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/integrity/checks/archive_checks.h"
#include "ckpt/integrity/checks/failures.h"
#include "ckpt/integrity/checks/manifest_checks.h"
#include "ckpt/io/staging/read_mark.h"
#include "ckpt/store/run_folder.h"

namespace ferry {
namespace {

constexpr int kMostFolders = 8;  // inside each other
constexpr uint64_t kMostJsonBytes = uint64_t{64} << 20;

// All regular files below `folder`, in the order of their names.
void list_files(const FileSystem& file_system, const std::string& folder, int depth,
                std::vector<FileInfo>& files) {
  for (const std::string& name : file_system.list(folder)) {
    const std::string path = join(folder, name);
    const PathStatus status = file_system.status(path);
    if (status.kind == PathKind::file) files.push_back({path, status.bytes});
    if (status.kind == PathKind::folder && depth < kMostFolders) {
      list_files(file_system, path, depth + 1, files);
    }
  }
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_run(const FileSystem& file_system, const std::string& path) {
  const std::vector<std::string> names = file_system.list(path);
  return !contains(names, ".metadata") && !contains(names, "metadata.json") &&
         is_run_folder(file_system, path);
}

const IterationFolder* latest_complete(const RunFolder& run) {
  const IterationFolder* latest = nullptr;
  for (const IterationFolder& folder : run.iterations) {
    if (folder.complete() && (folder.iteration || !latest)) latest = &folder;
  }
  return latest;
}

class Verification {
 public:
  Verification(std::shared_ptr<const FileSystem> file_system, const VerifyOptions& options)
      : file_system_(std::move(file_system)), options_(options) {}

  VerifyReport run(const std::string& path) {
    report_.path = path;
    const PathKind kind = file_system_->status(path).kind;
    if (kind == PathKind::folder && is_run(*file_system_, path)) {
      choose_from_run(path);
    } else if (!options_.iteration.empty()) {
      open_checkpoint(file_system_, path, {options_.iteration, false});  // says what is wrong
    }
    const ReadMark mark(*file_system_, report_.path);
    find_files(kind);
    if (kind == PathKind::folder) read_manifests();
    check_structure();
    check_bytes();
    tell_what_is_not_covered();
    mark.check();
    return std::move(report_);
  }

 private:
  void add_problem(const std::string& file, std::string what) {
    report_.problems.push_back({file, 0, 0, {}, std::move(what)});
  }
  void add_problems(std::vector<Problem> problems) {
    std::move(problems.begin(), problems.end(), std::back_inserter(report_.problems));
  }

  // The tracker is checked even where the iteration is chosen otherwise.
  void choose_from_run(const std::string& path) {
    const RunFolder run = read_run_folder(*file_system_, path);
    const IterationFolder* chosen = nullptr;
    std::string note;
    try {
      chosen = &choose_iteration(run, {}, &note);
    } catch (const Error& error) {
      chosen = latest_complete(run);
      if (!chosen) throw;
      add_problem(std::string(kTrackerName), error.what());
      if (options_.iteration.empty())
        note = "checked: " + chosen->name + ", the latest complete one";
    }
    if (!note.empty()) report_.notes.push_back(std::move(note));
    for (const IterationFolder& folder : run.iterations) {
      if (folder.complete()) continue;
      report_.notes.push_back(
          fmt::format("{} is unfinished: {}", join(path, folder.name), folder.unfinished));
    }
    if (!options_.iteration.empty()) chosen = &choose_iteration(run, options_.iteration, nullptr);
    report_.path = join(path, chosen->name);
    report_.iteration = chosen->iteration;
  }

  void find_files(PathKind kind) {
    if (kind == PathKind::folder) {
      list_files(*file_system_, report_.path, 0, files_);
    } else {
      files_.push_back({report_.path, file_system_->status(report_.path).bytes});
    }
    report_.files = static_cast<int64_t>(files_.size());
    for (const FileInfo& file : files_) report_.bytes += file.bytes;
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
      const std::string name = files_[number].path.substr(report_.path.size() + 1);
      if (contains(exempt, name)) continue;
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
      report_.notes.insert(report_.notes.end(), seen->notes.begin(), seen->notes.end());
      if (!seen->optimizer_problem.empty()) report_.notes.push_back(seen->optimizer_problem);
      check_coverage(seen->catalog);
    }
    stored_ = open(true);
    const Catalog* stored = stored_ ? &stored_->catalog : nullptr;
    archives_ = find_archives(stored, files_, *file_system_);
    ArchiveChecks checks =
        check_archives(stored, archives_, files_, *file_system_, options_.engine);
    list_.append(std::move(checks.list));
    add_problems(std::move(checks.problems));
    report_.items = checks.tensors + checks.objects + checks.whole_files;
    if (checks.without_crc32 > 0) {
      report_.notes.push_back(
          fmt::format("{} archives have records without a CRC-32", checks.without_crc32));
    }
  }

  // Damage that keeps a checkpoint from being opened is told once.
  std::optional<Checkpoint> open(bool raw) {
    try {
      return open_checkpoint(file_system_, report_.path, {{}, raw});
    } catch (const Error& error) {
      const bool damaged = error.kind() == ErrorKind::corrupt ||
                           error.kind() == ErrorKind::not_found ||
                           error.kind() == ErrorKind::mismatch || report_.has_manifest;
      if (!damaged || error.kind() == ErrorKind::cancelled) throw;
      const auto is_told = [&](const Problem& problem) { return problem.what == error.what(); };
      if (std::none_of(report_.problems.begin(), report_.problems.end(), is_told)) {
        add_problem({}, error.what());
      }
      return std::nullopt;
    }
  }

  void check_coverage(const Catalog& catalog) {
    for (const Entry& entry : catalog.entries) {
      try {
        check_chunks(catalog, entry);
        ++report_.tensors;
      } catch (const Error& error) {
        report_.problems.push_back({{}, 0, 0, "tensor " + entry.name, error.what()});
      }
    }
    for (const auto& [path, list_name] : not_named_) {
      const bool used =
          std::any_of(catalog.files.begin(), catalog.files.end(),
                      [&path = path](const FileInfo& file) { return file.path == path; });
      std::string what = fmt::format("{}: {} does not name it", path, list_name);
      if (used) {
        add_problem(path.substr(report_.path.size() + 1), std::move(what));
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
    const auto failed = run_checks(*file_system_, files_, list_.checks, options_.engine);
    add_problems(
        problems_of(list_, failed, files_, report_.path, stored_ ? &stored_->catalog : nullptr));
  }

  void tell_what_is_not_covered() {
    if (report_.covered_bytes >= report_.bytes) return;
    report_.notes.push_back(
        fmt::format("{} of {} bytes are under no checksum{}: whether they changed cannot be told",
                    report_.bytes - report_.covered_bytes, report_.bytes,
                    report_.has_manifest ? "" : fmt::format(" (there is no {})", kManifestName)));
  }

  std::shared_ptr<const FileSystem> file_system_;
  const VerifyOptions& options_;
  VerifyReport report_;
  std::vector<FileInfo> files_;
  Manifest manifest_;
  uint64_t own_bytes_ = 0;                                      // of the manifest
  std::vector<std::pair<std::string, const char*>> not_named_;  // path, and the list
  std::optional<Checkpoint> stored_;
  std::vector<Archive> archives_;
  CheckList list_;
};

}  // namespace

VerifyReport verify(std::shared_ptr<const FileSystem> file_system, const std::string& given,
                    const VerifyOptions& options) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (file_system->status(path).kind == PathKind::missing) {
    fail(ErrorKind::not_found, "{} does not exist, or is a link to something that does not", path);
  }
  return Verification(std::move(file_system), options).run(path);
}

}  // namespace ferry
