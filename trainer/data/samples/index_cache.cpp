#include "trainer/data/samples/index_cache.h"

#include <fmt/format.h>
#include <nettle/md5.h>

#include <array>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/publish.h"

namespace ferry {

namespace {

// A value indented one level deeper.
std::string indented(std::string_view json) {
  std::string text;
  for (const char c : json) {
    text += c;
    if (c == '\n') text += "    ";
  }
  return text;
}

void append(std::string& list, const std::string& element) {
  list += (list.empty() ? "\n    " : ",\n    ") + element;
}

}  // namespace

void Description::add(std::string_view key, std::string_view json) {
  append(members_, quoted(key) + ": " + indented(json));
}

std::string Description::text() const { return members_.empty() ? "{}" : "{" + members_ + "\n}"; }

void DescriptionList::add(std::string_view json) { append(values_, indented(json)); }

std::string DescriptionList::text() const { return values_.empty() ? "[]" : "[" + values_ + "\n]"; }

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string json_of_tokenizer(const std::string& json) {
  const auto tree = nlohmann::ordered_json::parse(json, nullptr, false);
  if (!tree.is_object()) {
    fail(ErrorKind::invalid, "the description of the tokenizer is not a JSON object: {}", json);
  }
  return tree.dump(4, ' ', true, nlohmann::json::error_handler_t::replace);
}

namespace {

constexpr std::string_view kNpyMagic("\x93NUMPY\x01\x00", 8);  // and the version
constexpr size_t kNpyPrefix = kNpyMagic.size() + 2;            // and the length of the header
constexpr size_t kNpyAlignment = 64;

std::string md5_hex(std::string_view text) {
  md5_ctx context;
  md5_init(&context);
  md5_update(&context, text.size(), reinterpret_cast<const uint8_t*>(text.data()));
  std::array<uint8_t, MD5_DIGEST_SIZE> digest{};
  md5_digest(&context, digest.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

std::string_view without_padding(std::string_view text) {
  const size_t end = text.find_last_not_of(" \n");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

}  // namespace

std::string npy_header(std::string_view type, std::span<const int64_t> shape) {
  std::string lengths = fmt::format("{}", fmt::join(shape, ", "));
  if (shape.size() == 1) lengths += ",";
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, lengths);
  const size_t bytes = kNpyPrefix + text.size() + 1;
  text.append((kNpyAlignment - bytes % kNpyAlignment) % kNpyAlignment, ' ');
  text += '\n';
  std::string header(kNpyMagic);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

IndexCache::IndexCache(std::shared_ptr<const FileSystem> file_system, std::string folder,
                       const std::string& kind, std::string description)
    : file_system_(std::move(file_system)),
      folder_(std::move(folder)),
      base_(md5_hex(description) + "-" + kind + "-"),
      description_(std::move(description)) {}

std::string IndexCache::path(std::string_view name) const {
  return join(folder_, base_ + std::string(name));
}

bool IndexCache::is_there() const {
  const std::string at = path("description.txt");
  try {
    const PathStatus status = file_system_->status(at);
    return status.kind == PathKind::file && status.bytes == description_.size() &&
           read_file(*file_system_, at, description_.size()) == description_;
  } catch (const Error&) {
    return false;  // readable only by another user: rebuild the order
  }
}

std::optional<FileBytes> IndexCache::load_file(std::string_view name, const std::string& header,
                                               size_t* offset) const {
  const std::string at = path(std::string(name) + ".npy");
  if (file_system_->status(at).kind != PathKind::file) return std::nullopt;
  FileBytes file(*file_system_, at);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  if (text.size() < kNpyPrefix || !text.starts_with(kNpyMagic)) return std::nullopt;
  const auto byte = [&text](size_t i) {
    return static_cast<size_t>(static_cast<uint8_t>(text[i]));
  };
  const size_t end = kNpyPrefix + (byte(kNpyPrefix - 2) | byte(kNpyPrefix - 1) << 8);
  // Versions of NumPy pad differently; everything but the padding must match.
  if (end > text.size() || end % alignof(int64_t) != 0 ||
      without_padding(text.substr(kNpyPrefix, end - kNpyPrefix)) !=
          without_padding(std::string_view(header).substr(kNpyPrefix))) {
    return std::nullopt;
  }
  *offset = end;
  return file;
}

void IndexCache::store(std::initializer_list<File> arrays) const {
  const std::string description = path("description.txt");
  std::vector<NewFile> files;
  for (const File& array : arrays) {
    files.push_back({split_path(path(array.name + ".npy")).name,
                     {std::as_bytes(std::span(array.header)), array.bytes}});
  }
  // Written last: it marks the arrays as complete.
  files.push_back({split_path(description).name, {std::as_bytes(std::span(description_))}});
  try {
    make_folders(*file_system_, folder_);
    const WriteLock lock(file_system_, description);
    publish_files(*file_system_, lock, folder_, files, Existing::replace);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::busy) return;
    fail(error.kind(), "{}; choose another folder for the sample order with --data-cache-path",
         error.what());
  }
}

}  // namespace ferry
