#include "ckpt/integrity/soundness.h"

#include <fmt/format.h>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/verify.h"

namespace ferry {
namespace {

std::string problem_by_manifest(const FileSystem& file_system, const std::string& folder) {
  const std::string path = join(folder, kManifestName);
  if (file_system.status(path).kind == PathKind::missing) return {};
  const Manifest manifest = parse_manifest(read_file(file_system, path, kMostManifestBytes), path);
  for (const ManifestFile& file : manifest.files) {
    const PathStatus status = file_system.status(join(folder, file.path));
    if (status.kind != PathKind::file) {
      return fmt::format("{} is missing; {} names it", file.path, kManifestName);
    }
    if (status.bytes != file.bytes) {
      return fmt::format("{} has {} bytes, {} were written", file.path, status.bytes, file.bytes);
    }
  }
  return {};
}

}  // namespace

std::string problem_by_structure(const std::shared_ptr<const FileSystem>& file_system,
                                 const std::string& folder) {
  try {
    const Checkpoint checkpoint = open_checkpoint(file_system, folder);
    if (!checkpoint.damage.empty()) return checkpoint.damage[0];
    if (!checkpoint.optimizer_problem.empty() && !checkpoint.optimizer_unsupported) {
      return checkpoint.optimizer_problem;
    }
    return problem_by_manifest(*file_system, folder);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    return error.what();
  }
}

std::string problem_by_bytes(const std::shared_ptr<const FileSystem>& file_system,
                             const std::string& folder, const EngineOptions& options) {
  try {
    const auto problems = verify(file_system, folder, {{}, Masters::compared, options}).problems;
    if (problems.empty()) return {};
    if (problems.size() == 1) return problems[0].what;
    return fmt::format("{}; and {} more problems", problems[0].what, problems.size() - 1);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    return error.what();
  }
}

}  // namespace ferry
