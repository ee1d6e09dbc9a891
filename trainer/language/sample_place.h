// A run's position in the order of its samples, and how two such positions differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"
#include "trainer/data/open_datasets.h"

namespace ferry {

/// What determines the samples that a run takes next.
struct SamplePlace {
  TrainOrder order;
  std::string loader;    // what determines the loader's own order
  int64_t position = 0;  // samples consumed of the order
};

/// The position of a run with these arguments after `iteration` and `consumed` samples. Errors of
/// train_order(); invalid if the train split is empty.
SamplePlace place_of(const std::shared_ptr<const FileSystem>& files, const TrainArguments& a,
                     int64_t iteration, int64_t consumed);

/// About how many of the samples after one position were seen before another, and how many unseen
/// ones are skipped.
struct SampleChange {
  double seen_again = 0, passed_over = 0;
  double others = 0;  // samples that follow in a new order, which mixes seen and unseen ones

  /// `parts`: number of datasets; differences of one sample each are ignored.
  bool is_any(size_t parts) const {
    return others > 0 || seen_again + passed_over > static_cast<double>(parts);
  }
};
SampleChange change_between(const FileSystem& files, const SamplePlace& before,
                            const SamplePlace& now);

/// Whether both files can be read and have the same bytes.
bool have_same_bytes(const FileSystem& files, const std::string& a, const std::string& b);

}  // namespace ferry
