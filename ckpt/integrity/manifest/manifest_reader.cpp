// The reading half of ckpt/integrity/manifest/manifest.h.
#include <algorithm>
#include <charconv>
#include <optional>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/integrity/manifest/manifest.h"
#include "ckpt/io/file_system.h"

namespace ferry {
namespace {

constexpr size_t kHexDigits = 32;
constexpr size_t kMostAxes = 64;

std::optional<Digest> parse_digest(std::string_view hex) {
  const bool lower_case = hex.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  if (hex.size() != kHexDigits || !lower_case) return std::nullopt;
  const char* middle = hex.data() + kHexDigits / 2;
  Digest digest;
  std::from_chars(hex.data(), middle, digest.high, 16);
  std::from_chars(middle, hex.data() + kHexDigits, digest.low, 16);
  return digest;
}

// Nothing of a manifest is believed before its bytes are known to be those that were written.
void check_own_digest(std::string_view text, const std::string& path) {
  const size_t tail = kHexDigits + kManifestDigestAfter.size();
  const size_t at = text.size() - std::min(text.size(), tail);
  const std::string_view covered = text.substr(0, at);
  const bool whole =
      text.ends_with(kManifestDigestAfter) && covered.ends_with(kManifestDigestBefore);
  if (whole && text.substr(at, kHexDigits) == to_hex(digest_of(std::as_bytes(std::span(covered)))))
    return;
  fail(ErrorKind::corrupt, "{}: the manifest is {}", path,
       whole ? "damaged: the digest at its end does not match"
             : "truncated or damaged: it does not end in a digest of itself");
}

class ManifestEvents final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  Manifest manifest;
  std::string format;
  uint64_t version = 0;
  uint64_t bytes = 0;

 private:
  enum class In : uint8_t { start, top, files, file, items, item, tensors, tensor, numbers };

  bool take_object() override {
    switch (in()) {
      case In::start:
        return enter(In::top);
      case In::files:
        manifest.files.emplace_back();
        return enter(In::file);
      case In::items:
        file().items.emplace_back();
        has_digest_ = false;
        return enter(In::item);
      case In::tensors:
        item().tensors.emplace_back();
        return enter(In::tensor);
      default:
        return refuse("an object");
    }
  }

  bool take_array() override {
    if (in() == In::top && key_ == "files") return enter(In::files);
    if (in() == In::file && key_ == "items") return enter(In::items);
    if (in() == In::item && key_ == "tensors") return enter(In::tensors);
    if (in() == In::tensor && (key_ == "begin" || key_ == "size")) return enter(In::numbers);
    return refuse("an array");
  }

  bool take_key(std::string& name) override {
    key_ = std::move(name);
    static constexpr std::string_view kKnown[] = {"format", "version",  "bytes",   "files", "path",
                                                  "items",  "offset",   "tensors", "name",  "begin",
                                                  "size",   "xxh3_128", "object",  "digest"};
    // A later version may say more.
    if (std::find(std::begin(kKnown), std::end(kKnown), key_) == std::end(kKnown)) skip();
    return true;
  }

  bool take_number(uint64_t value) override {
    if (in() == In::numbers) return take_extent(value);
    uint64_t* place = nullptr;
    if (in() == In::top && key_ == "version") place = &version;
    if (in() == In::top && key_ == "bytes") place = &bytes;
    if (in() == In::file && key_ == "bytes") place = &file().bytes;
    if (in() == In::item && key_ == "offset") place = &item().offset;
    if (in() == In::item && key_ == "bytes") place = &item().bytes;
    if (!place) return refuse("a number");
    *place = value;
    return true;
  }

  bool take_string(std::string& value) override {
    if (in() == In::item && key_ == "xxh3_128") return take_digest(value);
    std::string* place = nullptr;
    std::string digest_of_all;  // known to be right
    if (in() == In::top && key_ == "format") place = &format;
    if (in() == In::top && key_ == "digest") place = &digest_of_all;
    if (in() == In::file && key_ == "path") place = &file().path;
    if (in() == In::item && key_ == "object") place = &item().object;
    if (in() == In::tensor && key_ == "name") place = &item().tensors.back().name;
    if (!place) return refuse("a string");
    *place = std::move(value);
    return true;
  }

  bool end_of_object() override {
    if (in() == In::item && !has_digest_) return refuse("an item without one");
    stack_.pop_back();
    return true;
  }

  bool end_of_array() override {
    stack_.pop_back();
    return true;
  }

  bool take_extent(uint64_t value) {
    Box& box = item().tensors.back().box;
    Dims& dims = key_ == "begin" ? box.offset : box.size;
    if (value > INT64_MAX || dims.size() == kMostAxes)
      return refuse("a number that is not an extent");
    dims.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool take_digest(const std::string& hex) {
    const auto digest = parse_digest(hex);
    if (!digest) return refuse("another string");
    item().digest = *digest;
    has_digest_ = true;
    return true;
  }

  std::string expected() const override {
    if (in() == In::start) return "a manifest must be one object";
    if (in() == In::item) return "xxh3_128 of an item must be 32 hexadecimal digits";
    return "'" + key_ + "' must be as the manifest's form says";
  }

  bool enter(In place) {
    stack_.push_back(place);
    return true;
  }
  In in() const { return stack_.back(); }
  ManifestFile& file() { return manifest.files.back(); }
  ManifestItem& item() { return file().items.back(); }

  std::vector<In> stack_{In::start};
  std::string key_;
  bool has_digest_ = false;
};

void check_tiling(const ManifestFile& file, const std::string& path) {
  uint64_t end = 0;
  for (const ManifestItem& item : file.items) {
    if (item.offset != end || item.bytes == 0 || item.bytes > file.bytes - end) {
      fail(ErrorKind::corrupt,
           "{}: an item of {} bytes at {} of {}, where the items before it end at {} of {} bytes",
           path, item.bytes, item.offset, file.path, end, file.bytes);
    }
    end += item.bytes;
  }
  if (end != file.bytes) {
    fail(ErrorKind::corrupt, "{}: the items of {} end at {} of {} bytes", path, file.path, end,
         file.bytes);
  }
}

void check_files(const Manifest& manifest, const std::string& path) {
  std::vector<std::string_view> names;
  for (const ManifestFile& file : manifest.files) {
    join_untrusted(path, file.path);
    check_tiling(file, path);
    names.push_back(file.path);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorKind::corrupt, "{}: names {} twice", path, *twice);
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& path) {
  check_own_digest(text, path);
  ManifestEvents events(path);
  parse_events(text, events);
  if (events.format != kManifestFormat) {
    fail(ErrorKind::corrupt, "{}: its format is '{}', not {}", path, events.format,
         kManifestFormat);
  }
  if (events.version != kManifestVersion) {
    fail(ErrorKind::unsupported, "{}: version {} of a manifest; only version {} is known here",
         path, events.version, kManifestVersion);
  }
  check_files(events.manifest, path);
  if (events.bytes != events.manifest.bytes()) {
    fail(ErrorKind::corrupt, "{}: says {} bytes in all, its files add up to {}", path, events.bytes,
         events.manifest.bytes());
  }
  return std::move(events.manifest);
}

}  // namespace ferry
