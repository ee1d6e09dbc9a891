#include "ckpt/integrity/manifest/sha256_manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/integrity/manifest/folder_files.h"

namespace ferry {
namespace {

constexpr size_t kHashBytes = 1 << 20;
constexpr std::string_view kAlgorithm = "sha256";

Sha256 hash_file(const FileSystem& file_system, const std::string& path,
                 std::vector<std::byte>& buffer, const std::atomic<bool>* cancel,
                 const std::atomic<bool>& stop) {
  const auto file = file_system.open(path);
  Sha256Stream stream;
  for (uint64_t at = 0; at < file->size() && !stop;) {
    if (cancel && *cancel) fail(ErrorKind::cancelled, "stopped on request");
    const auto piece =
        std::span(buffer).first(std::min<uint64_t>(buffer.size(), file->size() - at));
    file->read(at, piece);
    stream.add(piece);
    at += piece.size();
  }
  return stream.finish();
}

}  // namespace

Sha256Files hash_folder(const FileSystem& file_system, const std::string& folder, int threads,
                        const std::atomic<bool>* cancel) {
  Sha256Files files;
  const size_t prefix = join(folder, "").size();
  for (const FileInfo& file : files_below(file_system, folder, cancel).files) {
    files.push_back({file.path.substr(prefix), {}});
  }
  std::sort(files.begin(), files.end());
  std::atomic<size_t> next{0};
  const int most = std::min<int>(thread_count(threads), static_cast<int>(files.size()));
  on_threads(most, [&](int, const std::atomic<bool>& stop) {
    std::vector<std::byte> buffer(kHashBytes);
    for (size_t i = next++; i < files.size() && !stop; i = next++) {
      files[i].second = hash_file(file_system, join(folder, files[i].first), buffer, cancel, stop);
    }
  });
  return files;
}

std::string sha256_manifest_text(const Sha256Files& files) {
  nlohmann::ordered_json names = nlohmann::ordered_json::object();
  for (const auto& [name, hash] : files) names[name] = to_hex(hash);
  const nlohmann::ordered_json json{{"algorithm", kAlgorithm}, {"files", std::move(names)}};
  try {
    return json.dump(2, ' ', true);
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::invalid, "a file name is not UTF-8: {} cannot hold it", kSha256ManifestName);
  }
}

Sha256Files parse_sha256_manifest(std::string_view text, const std::string& path) {
  const nlohmann::json json = parse_json(text, path);
  if (!json.is_object() || !json.contains("files") || !json["files"].is_object()) {
    fail(ErrorKind::corrupt, "{}: expected a JSON object with \"files\"", path);
  }
  if (json.value("algorithm", nlohmann::json(kAlgorithm)) != kAlgorithm) {
    fail(ErrorKind::unsupported, "{}: its algorithm is {}; only {} is known here", path,
         json["algorithm"].dump(), kAlgorithm);
  }
  Sha256Files files;
  for (const auto& [name, value] : json["files"].items()) {
    join_untrusted(path, name);
    const auto hash = value.is_string() ? parse_sha256(value.get<std::string>()) : std::nullopt;
    if (!hash) fail(ErrorKind::corrupt, "{}: the hash of {} is not a SHA-256", path, name);
    files.emplace_back(name, *hash);
  }
  return files;
}

}  // namespace ferry
