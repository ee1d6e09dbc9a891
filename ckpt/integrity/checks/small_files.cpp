#include "ckpt/integrity/checks/small_files.h"

#include <set>

#include "ckpt/integrity/manifest/plan_manifest.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"

namespace ferry {

void create_inner_folders(const PlannedOutput& planned, const FileSystem& file_system,
                          const std::string& folder) {
  std::set<std::string> folders;  // outer ones come first
  const auto add = [&](const std::string& name) {
    for (size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      folders.insert(name.substr(0, slash));
    }
  };
  for (const FileInfo& file : planned.plan.target.files) add(file.path);
  for (const auto& [name, content] : planned.small_files) add(name);
  for (const std::string& inner : folders) file_system.create_folder(join(folder, inner));
}

void write_small_files(const PlannedOutput& planned, std::span<const Digest> digests,
                       const IntegrityOptions& options, const FileSystem& file_system,
                       const std::string& folder, const EngineOptions& engine) {
  Manifest manifest;
  if (options.manifest) manifest = manifest_of(planned.plan, digests);
  write_small_files(planned.small_files, std::move(manifest), options, file_system, folder, engine);
}

void write_small_files(const std::vector<std::pair<std::string, std::string>>& small_files,
                       Manifest manifest, const IntegrityOptions& options,
                       const FileSystem& file_system, const std::string& folder,
                       const EngineOptions& engine) {
  const auto write = [&](const std::string& name, const std::string& content) {
    write_file(file_system, join(folder, name), content);
    manifest.add_file(name, content);
  };
  for (const auto& [name, content] : small_files) write(name, content);
  if (options.sha256) {
    write(kSha256ManifestName,
          sha256_manifest_text(hash_folder(file_system, folder, engine.threads, engine.cancel)));
  }
  if (options.manifest) write_file(file_system, join(folder, kManifestName), to_text(manifest));
}

}  // namespace ferry
