#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/checkpoint.h"
#include "ckpt/core/catalog.h"
#include "ckpt/engine/progress_meter.h"
#include "ckpt/integrity/checks/byte_checks.h"
#include "ckpt/integrity/manifest/folder_files.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/integrity/manifest/sha256_manifest.h"
#include "ckpt/integrity/verify.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/publish.h"
#include "ckpt/io/staging/reader_lock.h"

namespace ferry {
namespace {

// The items of a manifest for existing files: one for each run of bytes that holds tensors or
// objects, and one for each run between them.

// Bytes of a file that hold something.
struct Holding {
  uint64_t offset = 0, end = 0;
  std::vector<ManifestTensor> tensors;
  std::string object;
};

using HoldingsByFile = std::map<std::string, std::vector<Holding>>;

HoldingsByFile holdings_of(const Catalog* stored) {
  HoldingsByFile by_file;
  if (stored == nullptr) return by_file;
  const auto add = [&](const Extent& extent) -> Holding* {
    if (extent.length == 0) return nullptr;
    auto& holdings = by_file[stored->files.at(extent.file).path];
    return &holdings.emplace_back(Holding{extent.offset, extent.offset + extent.length, {}, {}});
  };
  for (const Entry& entry : stored->entries) {
    for (const Chunk& chunk : entry.chunks) {
      if (Holding* holding = add(chunk.extent)) holding->tensors = {{entry.name, chunk.box}};
    }
  }
  for (const Object& object : stored->objects) {
    if (Holding* holding = add(object.extent)) holding->object = object.name;
  }
  return by_file;
}

// Those that overlap (tensors that share a storage, objects of one pickle) become one.
std::vector<Holding> apart(std::vector<Holding> holdings) {
  std::stable_sort(holdings.begin(), holdings.end(),
                   [](const Holding& a, const Holding& b) { return a.offset < b.offset; });
  std::vector<Holding> result;
  for (Holding& holding : holdings) {
    if (result.empty() || holding.offset >= result.back().end) {
      result.push_back(std::move(holding));
      continue;
    }
    Holding& last = result.back();
    last.end = std::max(last.end, holding.end);
    last.tensors.insert(last.tensors.end(), holding.tensors.begin(), holding.tensors.end());
    if (last.object.empty()) last.object = std::move(holding.object);
  }
  return result;
}

ManifestFile file_of(std::string path, const FileInfo& file, std::vector<Holding> holdings) {
  ManifestFile result{std::move(path), file.bytes, {}};
  uint64_t end = 0;
  for (Holding& holding : apart(std::move(holdings))) {
    if (holding.end > file.bytes) {
      fail(ErrorKind::corrupt, "{}: ends at byte {}, but what it holds at {}", file.path,
           file.bytes, holding.end);
    }
    if (holding.offset > end) result.items.push_back({end, holding.offset - end, {}, {}, {}});
    result.items.push_back({holding.offset,
                            holding.end - holding.offset,
                            {},
                            std::move(holding.tensors),
                            std::move(holding.object)});
    end = holding.end;
  }
  if (end < file.bytes) result.items.push_back({end, file.bytes - end, {}, {}, {}});
  return result;
}

// A manifest without digests. `stored`: the catalog as its files have it (null: nothing is known
// of them). `files` are all files of `folder` that the manifest is to name.
Manifest stored_items(const Catalog* stored, const std::string& folder,
                      std::span<const FileInfo> files) {
  HoldingsByFile holdings = holdings_of(stored);
  Manifest manifest;
  const size_t prefix = join(folder, "").size();
  for (const FileInfo& file : files) {
    manifest.files.push_back(
        file_of(file.path.substr(prefix), file, std::move(holdings[file.path])));
  }
  return manifest;
}

constexpr uint64_t kPieceBytes = 1 << 20;  // read at once

// Fills in the digests of all items, with several threads.
void digest_items(const FileSystem& files, const std::string& folder, Manifest& manifest,
                  const EngineOptions& options) {
  std::vector<std::pair<const std::string*, ManifestItem*>> work;
  for (ManifestFile& file : manifest.files) {
    for (ManifestItem& item : file.items) work.emplace_back(&file.path, &item);
  }
  ProgressMeter meter(options.progress, manifest.bytes());
  std::atomic<size_t> next{0};
  on_threads(thread_count(options.threads), [&](int, const std::atomic<bool>& stop) {
    std::vector<std::byte> buffer(kPieceBytes);
    std::shared_ptr<const ReadableFile> file;
    const std::string* open_path = nullptr;
    for (size_t i = next++; i < work.size() && !stop; i = next++) {
      const auto& [path, item] = work[i];
      if (path != open_path) file = files.open(join(folder, *path));
      open_path = path;
      DigestStream stream;
      for (uint64_t at = 0; at < item->bytes && !stop;) {
        if (options.cancel && *options.cancel) fail(ErrorKind::cancelled, "stopped on request");
        const auto piece =
            std::span(buffer).first(std::min<uint64_t>(buffer.size(), item->bytes - at));
        file->read(item->offset + at, piece);
        stream.add(piece);
        at += piece.size();
        meter.add(piece.size());
      }
      item->digest = stream.digest();
    }
  });
  meter.finish();
}

bool is_cut_alike(const ManifestFile& a, const ManifestFile& b) {
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                    [](const ManifestItem& x, const ManifestItem& y) {
                      return x.offset == y.offset && x.bytes == y.bytes;
                    });
}

class Sealer {
 public:
  Sealer(std::shared_ptr<const FileSystem> files, const SealOptions& options)
      : files_(std::move(files)), options_(options) {}

  SealReport run(const std::string& path) {
    check_soundness(path);
    const Checkpoint stored = open_checkpoint(files_, report_.path, {{}, true});
    std::optional<WriteLock> write_lock;  // a file in the folder, which a dry run must not need
    if (!options_.dry_run) write_lock.emplace(files_, join(report_.path, kManifestName));
    const std::optional<Manifest> before = read_manifest();
    std::vector<FileInfo> found = files_to_seal();
    Manifest manifest = stored_items(&*stored.catalog, report_.path, found);
    digest_items(*files_, report_.path, manifest, options_.engine);
    if (before) compare(*before, manifest);
    count(stored.catalog, manifest);
    report_.sha256 = options_.sha256 || has(kSha256ManifestName);
    if (options_.dry_run) return std::move(report_);
    if (report_.sha256) manifest.add_file(kSha256ManifestName, write_sha256(*write_lock));
    check_reader_locks(stored.catalog->reader_locks);
    publish_file(*files_, *write_lock, join(report_.path, kManifestName), to_text(manifest),
                 Existing::replace);
    return std::move(report_);
  }

 private:
  bool has(const char* name) const {
    return files_->status(join(report_.path, name)).kind == PathKind::file;
  }

  // What is damaged must not be sealed as if it were right.
  void check_soundness(const std::string& path) {
    VerifyOptions options{options_.iteration, Masters::not_compared, options_.engine, false};
    options.engine.progress = {};
    const VerifyReport sound = verify(files_, path, options);
    if (files_->status(sound.path).kind != PathKind::folder) {
      fail(ErrorKind::invalid, "{}: a manifest seals a folder; give the folder that holds the file",
           sound.path);
    }
    if (!sound.problems.empty()) {
      fail(ErrorKind::corrupt, "{}: {}; nothing was sealed (verify lists what is wrong)",
           sound.path, sound.problems.front().what);
    }
    report_.path = sound.path;
    report_.format = sound.format;
  }

  std::optional<Manifest> read_manifest() {
    if (!has(kManifestName)) return std::nullopt;
    const std::string path = join(report_.path, kManifestName);
    report_.renewed = true;
    try {
      return parse_manifest(read_file(*files_, path, kMostManifestBytes), path);
    } catch (const Error& error) {
      report_.notes.push_back(fmt::format("what it replaces could not be read: {}", error.what()));
      return std::nullopt;
    }
  }

  // All but the manifests, and what other writers of them left.
  std::vector<FileInfo> files_to_seal() {
    FolderFiles found = files_below(*files_, report_.path, options_.engine.cancel);
    report_.notes.insert(report_.notes.end(), found.not_seen.begin(), found.not_seen.end());
    std::erase_if(found.files, [&](const FileInfo& file) {
      const SplitPath parts = split_path(file.path);
      const bool is_list = parts.name == kManifestName || parts.name == kSha256ManifestName;
      return (is_list && parts.parent == report_.path) || parts.name.starts_with(".ferry-");
    });
    return std::move(found.files);
  }

  // What differs from the manifest that was there.
  void compare(const Manifest& before, const Manifest& after) {
    std::map<std::string_view, const ManifestFile*> old;
    for (const ManifestFile& file : before.files) {
      if (file.path != kSha256ManifestName) old.emplace(file.path, &file);
    }
    for (const ManifestFile& file : after.files) {
      const auto found = old.find(file.path);
      if (found == old.end()) {
        report_.added.push_back(file.path);
        continue;
      }
      if (is_changed(*found->second, file)) report_.changed.push_back(file.path);
      old.erase(found);
    }
    for (const auto& [path, file] : old) report_.removed.emplace_back(path);
  }

  // Where a file was cut into other items then, its old digests are computed again.
  bool is_changed(const ManifestFile& before, const ManifestFile& after) const {
    if (before.bytes != after.bytes) return true;
    if (is_cut_alike(before, after)) {
      return !std::equal(
          before.items.begin(), before.items.end(), after.items.begin(),
          [](const ManifestItem& a, const ManifestItem& b) { return a.digest == b.digest; });
    }
    const FileInfo file{join(report_.path, after.path), after.bytes};
    std::vector<ByteCheck> checks;
    for (const ManifestItem& item : before.items) {
      checks.push_back({0, item.offset, item.bytes, item.digest});
    }
    EngineOptions quiet = options_.engine;
    quiet.progress = {};
    return !run_checks(*files_, {&file, 1}, checks, quiet).empty();
  }

  void count(const Catalog& catalog, const Manifest& manifest) {
    report_.tensors = static_cast<int64_t>(catalog.entries.size());
    report_.files = static_cast<int64_t>(manifest.files.size());
    report_.bytes = manifest.bytes();
    for (const ManifestFile& file : manifest.files) {
      report_.items += static_cast<int64_t>(file.items.size());
    }
  }

  std::string write_sha256(const WriteLock& write_lock) {
    Sha256Files hashes =
        hash_folder(*files_, report_.path, options_.engine.threads, options_.engine.cancel);
    std::erase_if(hashes, [](const auto& file) {
      return file.first == kManifestName || file.first == kSha256ManifestName ||
             split_path(file.first).name.starts_with(".ferry-");
    });
    std::string text = sha256_manifest_text(hashes);
    publish_file(*files_, write_lock, join(report_.path, kSha256ManifestName), text,
                 Existing::replace);
    return text;
  }

  std::shared_ptr<const FileSystem> files_;
  const SealOptions& options_;
  SealReport report_;
};

}  // namespace

SealReport seal(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                const SealOptions& options) {
  return with_paths({path}, [&] { return Sealer(std::move(file_system), options).run(path); });
}

}  // namespace ferry
