// What several test programs need: fixtures, the truth about them, copies of them in memory.
#pragma once

#include <fmt/core.h>
#include <xxhash.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/io/memory_file_system.h"

namespace ferry::test {

inline std::string fixture(const std::string& name) {
  return std::string(FERRY_FIXTURES) + "/" + name;
}

/// Tensor name -> {dtype, shape, xxh3_128}, as tests/interop/fixtures/make_truth.py writes it.
inline nlohmann::json truth_of(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(fixture("truth/" + name + ".json")));
}

inline std::string hash_of(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

/// Copies a folder of the disk, with all below it.
inline void copy_tree(const std::string& from, MemoryFileSystem& memory, const std::string& to) {
  const auto disk = posix_file_system();
  for (const std::string& name : disk->list(from)) {
    const std::string path = from + "/" + name;
    if (disk->status(path).kind == PathKind::folder) {
      copy_tree(path, memory, to + "/" + name);
    } else {
      memory.put(to + "/" + name, read_file(*disk, path, uint64_t{1} << 30));
    }
  }
}

}  // namespace ferry::test
