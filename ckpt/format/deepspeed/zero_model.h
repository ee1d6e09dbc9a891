// What a *_model_states.pt holds: the parameters' names and shapes in the order of the flat
// tensors, buffers, frozen parameters, which parameters are one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/deepspeed/partitions.h"

namespace ferry {

struct ZeroModel {
  std::vector<ZeroGroup> groups;
  std::vector<Entry> buffers;
  std::vector<Entry> weights;                               // of `module`, as they were saved
  std::vector<std::pair<std::string, std::string>> shared;  // name, and whose tensor it is
  std::vector<std::pair<std::string, Dims>> frozen;         // without optimizer state
  std::string version;                                      // of DeepSpeed
  std::optional<int64_t> steps;
  bool is_universal = false;
};

/// `root` is the value of the file number `file`; `what` names that for messages.
ZeroModel read_zero_model(const TorchArchive& archive, uint32_t file, const std::string& what);

/// Frozen parameters: whole in the file, or a part on each rank. `archives` are of the model's
/// files by rank, `files` their numbers.
std::vector<Entry> frozen_parameters(const ZeroModel& model, const std::vector<TorchArchive>& ranks,
                                     const std::vector<uint32_t>& files, const std::string& what);

}  // namespace ferry
