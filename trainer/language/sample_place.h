// Where a run is in the order of its samples, and how two such places differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/data/open_datasets.h"

namespace ferry {

/// What a run takes next, as the sampler and the datasets have it.
struct SamplePlace {
  TrainOrder order;
  std::string loader;    // what decides on the loader's own order
  int64_t position = 0;  // samples of the order that are consumed
};

/// Of a run with these arguments after `iteration`, when it has consumed so many samples. Errors of
/// train_order(); invalid where the train split has no share of the data.
SamplePlace place_of(const std::shared_ptr<const FileSystem>& files, const TrainArguments& a,
                     int64_t iteration, int64_t consumed);

/// Of the samples that follow at one place, about how many were seen on the way to another, and how
/// many that were not are passed over.
struct SampleChange {
  double seen_again = 0, passed_over = 0;
  double others = 0;  // that follow in an order which is new: it mixes those seen with the others

  /// `parts`: datasets, of each of which one sample more or less is nothing.
  bool is_any(size_t parts) const {
    return others > 0 || seen_again + passed_over > static_cast<double>(parts);
  }
};
SampleChange change_between(const FileSystem& files, const SamplePlace& before,
                            const SamplePlace& now);

/// Whether both can be read and have the same bytes.
bool have_same_bytes(const FileSystem& files, const std::string& a, const std::string& b);

}  // namespace ferry
