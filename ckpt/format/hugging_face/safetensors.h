// The safetensors container: header to catalog entries, entries to header.
//
// 1. uint64 little-endian: length N of the header, at most 100,000,000.
// 2. N bytes of JSON, starting with '{', possibly ending in spaces: name -> {dtype, shape,
//    data_offsets: [begin, end)} relative to the end of the header; "__metadata__": string ->
//    string.
// 3. The data: row-major, little-endian, the tensors contiguous without hole or overlap.
//
// Source: huggingface/safetensors README, safetensors/src/tensor.rs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct SafetensorsHeader {
  static constexpr uint64_t kLengthBytes = 8;          // of the number before the JSON
  static constexpr uint64_t kMostBytes = 100'000'000;  // of JSON
  static constexpr std::string_view kMetadataKey = "__metadata__";

  std::map<std::string, std::string> metadata;
  std::vector<Entry> entries;  // one raw whole-tensor chunk each; Extent::file is `file_index`
  uint64_t data_offset = 0;    // of the data, in the file
};

/// Reads and validates a header. corrupt for anything the format forbids (see tensor.rs): bad
/// length, not UTF-8 or JSON, duplicate names, unknown dtype, shape x dtype unlike the byte range,
/// holes, overlaps, data that does not end where the file does.
SafetensorsHeader read_safetensors_header(const ReadableFile& file, uint32_t file_index);

/// Header bytes (with the 8-byte length, padded so that data starts at a multiple of 8) for tensors
/// in this order, and fills each entry's single chunk with its place in file `file_index`. Entries
/// keep their order: the caller sorts.
std::string write_safetensors_header(std::vector<Entry*> entries,
                                     const std::map<std::string, std::string>& metadata,
                                     uint32_t file_index, uint64_t* file_bytes);

}  // namespace ferry
