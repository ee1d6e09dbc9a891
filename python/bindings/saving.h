// What save() and AsyncSaver have in common.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/memory/save.h"
#include "ops/output/write_output.h"
#include "python/bindings/saving_tensors.h"

namespace ferry::python {

struct SaveFormat {
  std::shared_ptr<const SnapshotFormat> format;
  /// What the checkpoint is where it is a folder of its own, and no iteration of a run.
  OutputKind alone = OutputKind::checkpoint_folder;
};

/// What the keywords of save() say, and most_in_flight of an AsyncSaver.
struct SaveSettings {
  SaveOptions options;
  int most_in_flight = 1;
  uint64_t staging_bytes = uint64_t{8} << 30;
  std::optional<int64_t> keep, keep_every;  // as options.keep has them
};

/// An argument; invalid for what is none.
int64_t iteration_of(nanobind::handle given);

struct Given {
  GivenTensors tensors;
  Snapshot snapshot;
};

/// A snapshot of arguments. Objects are rank 0's.
Given given_by(nanobind::handle tensors, int64_t iteration, nanobind::handle objects,
               const SaveFormat& format, int rank, CudaStager& stager);

/// What is wrong with what a rank wants to give, for the others, which wait for it.
Error for_others(const std::exception_ptr& problem);

void bind_save_options(nanobind::module_& module);
void bind_saver(nanobind::module_& module);

}  // namespace ferry::python
