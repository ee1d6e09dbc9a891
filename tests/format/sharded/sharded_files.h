// What tests of sharded checkpoints share: a folder of fixtures in memory, to be damaged, and what
// it must hold.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "tests/io/memory_file_system.h"

namespace ferry::test {

inline const std::string kForeign = FERRY_FIXTURES "/foreign/";

/// All files below a folder of fixtures/foreign, by their paths in it.
inline std::map<std::string, std::string> files_below(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kForeign + folder)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string name = std::filesystem::relative(entry.path(), kForeign + folder).string();
    files[name] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

inline std::shared_ptr<MemoryFileSystem> in_memory(const std::map<std::string, std::string>& files,
                                                   const std::string& folder) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  for (const auto& [name, content] : files) memory->put(folder + "/" + name, content);
  return memory;
}

inline std::map<std::string, std::string> contents(const Catalog& catalog, Role role) {
  std::map<std::string, std::string> all;
  for (const Entry& entry : catalog.entries) {
    if (entry.role == role) all[entry.name] = read_tensor(catalog, entry, 1 << 20);
  }
  return all;
}

/// Puts other bytes of the same length in place; returns how often.
inline int replace_all(std::string& text, std::string_view from, std::string_view to) {
  int count = 0;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size(), ++count) {
    text.replace(at, from.size(), to);
  }
  return count;
}

/// What a peer's own tool made of it: those names that begin so, or all others.
inline std::map<std::string, std::string> truth(const std::string& file, bool optimizer) {
  const Catalog catalog = open_safetensors_file(posix_file_system(), kForeign + file);
  std::map<std::string, std::string> all;
  for (const Entry& entry : catalog.entries) {
    if (entry.name.starts_with("optimizer.state.") == optimizer) {
      all[entry.name] = read_tensor(catalog, entry, 1 << 20);
    }
  }
  return all;
}

/// Opens and reads all of it: anything but an Error is a failure of the test.
inline bool reads(const std::shared_ptr<MemoryFileSystem>& files, const std::string& folder) {
  try {
    const Checkpoint checkpoint = open_checkpoint(files, folder);
    for (const Entry& entry : checkpoint.catalog->entries) {
      read_tensor(checkpoint.catalog, entry, 1 << 22);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Flips bytes of the files, and cuts them, so many times; how many of the results could be read.
inline int survivors(const std::map<std::string, std::string>& files, int times, uint32_t seed) {
  std::mt19937 random(seed);
  int count = 0;
  for (int i = 0; i < times; ++i) {
    auto damaged = files;
    auto at = damaged.begin();
    std::advance(at, random() % damaged.size());
    std::string& content = at->second;
    if (content.empty()) continue;
    if (i % 8 == 0) {
      content.resize(random() % content.size());
    } else {  // pickles lie at the beginning
      const size_t head = std::min<size_t>(content.size(), 12000);
      for (int n = 0; n < 1 + i % 3; ++n) content[random() % head] = static_cast<char>(random());
    }
    count += reads(in_memory(damaged, "x"), "x");
  }
  return count;
}

}  // namespace ferry::test
