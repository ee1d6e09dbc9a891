#include "ckpt/integrity/manifest/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "ckpt/base/checked.h"

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

// Items are millions in a run of thousands of ranks: their text is put together by hand.
template <typename Number>
void append_number(std::string& text, Number number) {
  char digits[20];
  text.append(digits, std::to_chars(digits, std::end(digits), number).ptr);
}

void append_numbers(std::string& text, const Dims& numbers) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) text += ", ";
    append_number(text, numbers[i]);
  }
}

void append_hex(std::string& text, uint64_t value) {
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
}

void append_quoted(std::string& text, const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (is_plain) {
    ((text += '"') += name) += '"';
  } else {
    text += quoted(name);
  }
}

void append(std::string& text, const ManifestItem& item) {
  append_number(text += "{\"offset\": ", item.offset);
  append_number(text += ", \"bytes\": ", item.bytes);
  append_hex(text += ", \"xxh3_128\": \"", item.digest.high);
  append_hex(text, item.digest.low);
  text += '"';
  if (!item.object.empty()) append_quoted(text += ", \"object\": ", item.object);
  const char* before = ", \"tensors\": [";
  for (const ManifestTensor& tensor : item.tensors) {
    append_quoted((text += before) += "{\"name\": ", tensor.name);
    append_numbers(text += ", \"begin\": [", tensor.box.offset);
    append_numbers(text += "], \"size\": [", tensor.box.size);
    text += "]}";
    before = ", ";
  }
  text += item.tensors.empty() ? "}" : "]}";
}

void append(std::string& text, const ManifestFile& file) {
  (text += "{\"path\": ") += quoted_path(file.path);
  append_number(text += ", \"bytes\": ", file.bytes);
  text += ", \"items\": [";
  const char* before = "\n";
  for (const ManifestItem& item : file.items) {
    append(text += before, item);
    before = ",\n";
  }
  text += file.items.empty() ? "]}" : "\n]}";
}

// About as many bytes as the text has.
uint64_t expected_bytes(const Manifest& manifest) {
  constexpr uint64_t kItemBytes = 100, kTensorBytes = 80;
  uint64_t bytes = 0;
  for (const ManifestFile& file : manifest.files) {
    bytes += (file.items.size() + 1) * kItemBytes;
    for (const ManifestItem& item : file.items) {
      for (const ManifestTensor& tensor : item.tensors) bytes += kTensorBytes + tensor.name.size();
    }
  }
  return bytes;
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
  std::string text =
      fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n\"bytes\": {},\n\"files\": [",
                  kManifestFormat, kManifestVersion, manifest.bytes());
  text.reserve(expected_bytes(manifest));
  const char* before = "\n";
  for (const ManifestFile& file : manifest.files) {
    append(text += before, file);
    before = ",\n";
  }
  (text += "\n],\n") += kManifestDigestBefore;
  const Digest digest = digest_of(std::as_bytes(std::span(text)));
  return ((text += to_hex(digest)) += kManifestDigestAfter);
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
