// The datasets of a run: what its flags name, opened.
#pragma once

#include <memory>

#include "ckpt/io/file_system.h"
#include "trainer/data/data_options.h"
#include "trainer/data/dataset.h"

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

/// Looks at options and token files as open_datasets() does, but makes no orders of samples, so
/// that nothing is stored. Which splits there are.
PerSplit<bool> check_datasets(const std::shared_ptr<const FileSystem>& file_system,
                              const DataOptions& options);

}  // namespace ferry
