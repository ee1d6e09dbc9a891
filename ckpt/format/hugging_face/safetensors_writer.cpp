// The writing half of ckpt/format/hugging_face/safetensors.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ckpt/base/checked.h"
#include "ckpt/format/hugging_face/safetensors.h"

namespace ferry {
namespace {

std::string quoted(const std::string& text, std::string_view what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::invalid, "{} '{}' is not UTF-8: safetensors cannot hold it", what,
         nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
}

Dims header_shape(const Entry& entry) {
  Dims shape = entry.shape;
  if (entry.dtype != DType::f4x2) return shape;
  if (shape.empty()) {
    fail(ErrorKind::unsupported, "tensor {}: safetensors cannot hold a scalar of dtype F4",
         entry.name);
  }
  shape.back() = checked_multiply<int64_t>(shape.back(), 2, entry.name);
  return shape;
}

void check_writable(const std::vector<Entry*>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry* entry : entries) {
    if (entry->name == SafetensorsHeader::kMetadataKey) {
      fail(ErrorKind::unsupported, "a tensor of the name {} cannot be put into safetensors",
           SafetensorsHeader::kMetadataKey);
    }
    if (entry->dtype == DType::c128) {
      fail(ErrorKind::unsupported, "tensor {}: safetensors has no complex128", entry->name);
    }
    names.push_back(entry->name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail(ErrorKind::invalid, "two tensors have the name {}", *twice);
}

}  // namespace

std::string write_safetensors_header(std::vector<Entry*> entries,
                                     const std::map<std::string, std::string>& metadata,
                                     uint32_t file_index, uint64_t* file_bytes) {
  check_writable(entries);
  fmt::memory_buffer json;
  const auto out = std::back_inserter(json);
  const char* comma = "";
  json.push_back('{');
  if (!metadata.empty()) {
    fmt::format_to(out, "\"{}\":{}", SafetensorsHeader::kMetadataKey,
                   nlohmann::json(metadata).dump());
    comma = ",";
  }
  uint64_t end = 0;
  for (Entry* entry : entries) {
    const uint64_t begin = end;
    end = checked_add(begin, static_cast<uint64_t>(entry->bytes()), "size of a safetensors file");
    fmt::format_to(out, "{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma,
                   quoted(entry->name, "tensor name"), safetensors_name(entry->dtype),
                   fmt::join(header_shape(*entry), ","), begin, end);
    comma = ",";
    entry->chunks.assign(1, {});
    entry->chunks[0].box = Box::whole(entry->shape);
    entry->chunks[0].extent = {file_index, begin, end - begin};
  }
  json.push_back('}');
  while (json.size() % 8 != 0) json.push_back(' ');
  const uint64_t length = json.size();
  if (length > SafetensorsHeader::kMostBytes) {
    fail(ErrorKind::unsupported,
         "the header of {} tensors takes {} bytes, above safetensors' limit of {}; write smaller "
         "shards",
         entries.size(), length, SafetensorsHeader::kMostBytes);
  }
  const uint64_t data_offset = SafetensorsHeader::kLengthBytes + length;
  for (Entry* entry : entries) entry->chunks[0].extent.offset += data_offset;
  *file_bytes = checked_add(data_offset, end, "size of a safetensors file");
  std::string header(SafetensorsHeader::kLengthBytes, '\0');
  std::memcpy(header.data(), &length, SafetensorsHeader::kLengthBytes);
  return header.append(json.data(), json.size());
}

}  // namespace ferry
