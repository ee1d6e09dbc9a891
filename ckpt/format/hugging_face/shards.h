// Names of the files of one save in several: "model-00002-of-00007.safetensors".
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {

struct ShardName {
  std::string front, back;  // "model-", "-of-00007.safetensors": what the others share
  size_t number = 0, total = 0, digits = 0;
};

/// Nothing where `name` is none, or ends otherwise than in `end`.
std::optional<ShardName> shard_name(const std::string& name, std::string_view end);

/// The shards of one save.
struct ShardSet {
  size_t total = 0;
  std::vector<std::string> names;    // that are there
  std::vector<std::string> missing;  // that the names of the others ask for
};

/// The saves that some of `names` belong to, by what the names of each share. Numbers begin with 1,
/// or, where a shard has it, with 0.
std::map<std::string, ShardSet> shard_sets(const std::vector<std::string>& names,
                                           std::string_view end);

/// The shards of the only complete save; empty when there is none, or more than one.
std::vector<std::string> whole_set(const std::vector<std::string>& names, std::string_view end);

}  // namespace ferry
