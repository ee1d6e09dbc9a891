// A state dict that was taken apart into one object a leaf, put together again.
//
// Source: torch/distributed/checkpoint/_nested_dict.py (flatten_state_dict): dicts and lists are
// taken apart, tuples are not; `planner_data` says which path each key stands for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/checkpoint.h"

namespace ferry {

/// The path of a key: as planner_data says, else its parts between dots. A number is a position in
/// a list.
struct StatePath {
  struct Part {
    std::string key;
    int64_t position = -1;  // in a list; -1: a key of a dict
  };
  std::vector<Part> parts;
};

class StatePaths {
 public:
  /// From planner_data: a dict of tuples, or none. It must outlive this.
  explicit StatePaths(const Value& paths);
  StatePath of(std::string_view key) const;

 private:
  std::unordered_map<std::string_view, Value> known_;
};

/// The member `name` of the state dict, with the bytes of its storages; none where no object is
/// part of it. Leaves whose path `is_used` rejects are left out. exhausted when it nests too deep.
LoadedValue read_member(const Checkpoint& checkpoint, std::string_view name,
                        const std::function<bool(const StatePath&)>& is_used = {});

}  // namespace ferry
