// Opens the datasets that a run's flags name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/data/data_options.h"
#include "trainer/data/dataset.h"
#include "trainer/data/samples/gpt_indices.h"

namespace ferry {

/// Opens train, valid and test; null where there is no such split. Sample orders are read from the
/// cache, or built and stored there; of several processes that open the same datasets, one should
/// do so first, so that the others find what it stored. invalid for contradictory options;
/// not_found and corrupt for token files.
///
/// Samples, their order and the files of the cache are Megatron-LM's for the same flags: either
/// program continues the other's run.
PerSplit<std::shared_ptr<const Dataset>> open_datasets(
    const std::shared_ptr<const FileSystem>& file_system, const DataOptions& options);

/// What determines the samples of the train split and their order.
struct TrainOrder {
  struct Part {           // one dataset
    std::string prefix;   // of its token files; empty: mock data
    SequenceRange range;  // the sequences used
    int64_t tokens = 0;   // in that range,
    EpochPlan plan;       // how often it is read
    double share = 1;     // of the run's samples
  };
  std::vector<Part> parts;
  int64_t seed = 0, sequence_length = 0;
  int64_t samples = 0;  // that the run takes in total
};

/// The order that open_datasets() would use with these options, from metadata alone: no order is
/// made or stored. Empty if there is no train split. Errors as there.
std::optional<TrainOrder> train_order(const std::shared_ptr<const FileSystem>& file_system,
                                      const DataOptions& options);

/// Checks options and token files as open_datasets() does, without making or storing orders of
/// samples. Returns which splits exist.
PerSplit<bool> check_datasets(const std::shared_ptr<const FileSystem>& file_system,
                              const DataOptions& options);

}  // namespace ferry
