#include "ckpt/integrity/checks/vouchers.h"

#include "ckpt/integrity/sha256_manifest.h"

namespace ferry {

std::vector<std::pair<std::string, std::string>> vouchers(const VoucherOptions& options,
                                                          Manifest manifest,
                                                          const FileSystem& file_system,
                                                          const std::string& folder,
                                                          const EngineOptions& engine) {
  std::vector<std::pair<std::string, std::string>> files;
  if (options.sha256) {
    std::string text =
        sha256_manifest_text(hash_folder(file_system, folder, engine.threads, engine.cancel));
    manifest.add_file(kSha256ManifestName, text);
    files.emplace_back(kSha256ManifestName, std::move(text));
  }
  if (options.manifest) files.emplace_back(kManifestName, to_text(manifest));
  return files;
}

}  // namespace ferry
