#include "ckpt/integrity/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/checked.h"
#include "ckpt/integrity/manifest_text.h"

namespace ferry {
namespace {

// In ASCII; what is not UTF-8 in a name becomes U+FFFD.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

// A file name must lead to its file again.
std::string quoted_path(const std::string& path) {
  try {
    return nlohmann::json(path).dump(-1, ' ', true);
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::invalid, "the file name {} is not UTF-8: the manifest cannot hold it",
         quoted(path));
  }
}

void append(fmt::memory_buffer& text, const ManifestItem& item) {
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{{\"offset\": {}, \"bytes\": {}, \"xxh3_128\": \"{}\"", item.offset,
                 item.bytes, to_hex(item.digest));
  if (!item.object.empty()) fmt::format_to(out, ", \"object\": {}", quoted(item.object));
  const char* before = ", \"tensors\": [";
  for (const ManifestTensor& tensor : item.tensors) {
    fmt::format_to(out, "{}{{\"name\": {}, \"begin\": [{}], \"size\": [{}]}}", before,
                   quoted(tensor.name), fmt::join(tensor.box.offset, ", "),
                   fmt::join(tensor.box.size, ", "));
    before = ", ";
  }
  fmt::format_to(out, "{}}}", item.tensors.empty() ? "" : "]");
}

void append(fmt::memory_buffer& text, const ManifestFile& file) {
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{{\"path\": {}, \"bytes\": {}, \"items\": [", quoted_path(file.path),
                 file.bytes);
  const char* before = "\n";
  for (const ManifestItem& item : file.items) {
    fmt::format_to(out, "{}", before);
    append(text, item);
    before = ",\n";
  }
  fmt::format_to(out, "{}]}}", file.items.empty() ? "" : "\n");
}

}  // namespace

uint64_t Manifest::bytes() const {
  uint64_t sum = 0;
  for (const ManifestFile& file : files) sum = checked_add(sum, file.bytes, "size of all files");
  return sum;
}

void Manifest::add_file(std::string path, std::string_view content) {
  ManifestFile& file = files.emplace_back();
  file.path = std::move(path);
  file.bytes = content.size();
  if (content.empty()) return;
  file.items.push_back({0, content.size(), digest_of(std::as_bytes(std::span(content))), {}, {}});
}

std::string to_text(const Manifest& manifest) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{{\n\"format\": \"{}\",\n\"version\": {},\n\"bytes\": {},\n\"files\": [",
                 kManifestFormat, kManifestVersion, manifest.bytes());
  const char* before = "\n";
  for (const ManifestFile& file : manifest.files) {
    fmt::format_to(out, "{}", before);
    append(text, file);
    before = ",\n";
  }
  fmt::format_to(out, "\n],\n{}", kManifestDigestBefore);
  const Digest digest = digest_of(std::as_bytes(std::span(text.data(), text.size())));
  fmt::format_to(out, "{}{}", to_hex(digest), kManifestDigestAfter);
  return fmt::to_string(text);
}

std::string describe(const ManifestItem& item) {
  if (!item.object.empty()) return "object " + item.object;
  if (item.tensors.empty()) return {};
  const ManifestTensor& first = item.tensors.front();
  std::string text = fmt::format("tensor {} {}", first.name, to_string(first.box));
  if (item.tensors.size() > 1) text += fmt::format(" and {} more", item.tensors.size() - 1);
  return text;
}

}  // namespace ferry
