// The datasets of a run: what its flags name, opened.
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
/// cache, or built and stored there; where several processes open the same datasets, one of them
/// should do so first, so that the others find what it stored. invalid for options that make no
/// sense together; not_found and corrupt for token files.
///
/// Samples, their order and the files of the cache are Megatron-LM's for the same flags: either
/// program continues the other's run.
PerSplit<std::shared_ptr<const Dataset>> open_datasets(
    const std::shared_ptr<const FileSystem>& file_system, const DataOptions& options);

/// What decides which samples the train split has, and in which order.
struct TrainOrder {
  struct Part {           // one dataset
    std::string prefix;   // of its token files; empty: mock data
    SequenceRange range;  // of its sequences
    int64_t tokens = 0;   // in that range
    EpochPlan plan;       // how often it is read
    double share = 1;     // of the run's samples
  };
  std::vector<Part> parts;
  int64_t seed = 0, sequence_length = 0;
  int64_t samples = 0;  // that the run takes in all
};

/// Of open_datasets() with these options, by metadata alone: no order is made or stored. Nothing
/// where there is no train split. Errors as there.
std::optional<TrainOrder> train_order(const std::shared_ptr<const FileSystem>& file_system,
                                      const DataOptions& options);

/// Looks at options and token files as open_datasets() does, but makes no orders of samples, so
/// that nothing is stored. Which splits there are.
PerSplit<bool> check_datasets(const std::shared_ptr<const FileSystem>& file_system,
                              const DataOptions& options);

}  // namespace ferry
