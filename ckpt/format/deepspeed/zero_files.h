// The files of a ZeRO save, by the ranks in their names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/core/catalog.h"
#include "ckpt/format/deepspeed/partitions.h"

namespace ferry {

struct ZeroFiles {
  std::vector<std::string> model;      // one; of stage 3 one a rank, by rank
  std::vector<std::string> optimizer;  // one a rank, by rank; none when none were saved
  std::string folder;

  bool is_partitioned = false;  // the model's are one a rank
};

/// True for the name of a file that only DeepSpeed writes.
bool is_zero_file(const std::string& name);

/// not_found, naming them, when ranks between those that are there are missing; unsupported for the
/// files of tensor, pipeline or expert parallelism.
ZeroFiles find_zero_files(const std::vector<std::string>& names, const std::string& folder);

// What a *_model_states.pt holds: the parameters' names and shapes in the order of the flat
// tensors, buffers, frozen parameters, which parameters are one.

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
