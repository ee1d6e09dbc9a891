// The manifest of what ferry writes: a digest of every byte of the folder, and the name of the
// tensor or object that each byte belongs to.
//
// A file's items tile it: they begin at byte 0, follow each other without gap or overlap and end
// where the file ends. So every byte of every file that the manifest names is covered by exactly
// one digest, and the manifest's own bytes by the digest at its end. docs/formats.md has the text's
// form; other programs ignore the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/digest.h"

namespace ferry {

inline constexpr const char* kManifestName = "ferry.manifest.json";
inline constexpr uint64_t kMostManifestBytes = uint64_t{1} << 30;

/// A part of a tensor whose elements an item holds.
struct ManifestTensor {
  std::string name;
  Box box;

  bool operator==(const ManifestTensor&) const = default;
};

/// A run of bytes of a file. Without tensors and object: a header, padding, a whole small file.
struct ManifestItem {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  Digest digest;
  std::vector<ManifestTensor> tensors;
  std::string object;  // name of the stored object; empty: none

  bool operator==(const ManifestItem&) const = default;
};

struct ManifestFile {
  std::string path;  // inside the manifest's folder
  uint64_t bytes = 0;
  std::vector<ManifestItem> items;

  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  std::vector<ManifestFile> files;

  uint64_t bytes() const;  // of all files
  /// Adds a file, as one item.
  void add_file(std::string path, std::string_view content);

  bool operator==(const Manifest&) const = default;
};

/// The text of the manifest; of equal manifests the same.
std::string to_text(const Manifest& manifest);

/// corrupt when the text's digest is not that of its bytes, when it is not a manifest, and for
/// items that do not tile their file, duplicate files, names that leave the folder; unsupported for
/// another version. `path` is for messages.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// "tensor a.b [0:2, 0:32]", "object args"; empty when the item is neither.
std::string describe(const ManifestItem& item);

// What the writer and the reader of a manifest's text share.

inline constexpr std::string_view kManifestFormat = "ferry.manifest";
inline constexpr uint64_t kManifestVersion = 1;

/// The text ends in these, with 32 hexadecimal digits between: the digest of all bytes before the
/// digits.
inline constexpr std::string_view kManifestDigestBefore = "\"digest\": \"";
inline constexpr std::string_view kManifestDigestAfter = "\"\n}\n";

}  // namespace ferry
