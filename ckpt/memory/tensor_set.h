// What is in a TensorSet: entries, and how each is made of a source's.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/io/posix_files.h"
#include "ckpt/memory/load.h"

namespace ferry {

class TensorSet::State {
 public:
  /// The entries of `source`, as they are stored.
  explicit State(const SharedCatalog& source) : source_(source), made_(source), index_(made_) {}
  /// What recipes make of `source`; their Quantise::parts are positions in `tensors`.
  State(SharedCatalog source, std::vector<StateTensor> tensors, std::shared_ptr<const void> memory);

  const SharedCatalog& source() const noexcept { return source_; }
  const std::vector<Entry>& entries() const noexcept { return made_->entries; }
  const Entry* find(std::string_view name) const { return index_.find(name); }
  /// The same; not_found, with what to do, when it is absent. Returns its position.
  size_t position_of(std::string_view name) const;
  Recipe recipe(size_t position) const;
  /// All tensors that are made together with one that is quantised as it is read, itself among
  /// them: weights, their scales, and weights that have one second scale with them. Null for
  /// others.
  const std::vector<size_t>* together(size_t position) const;

  /// A file of the source, mapped when first asked for; null where it cannot be.
  std::shared_ptr<PrivateMapping> mapping(uint32_t file) const;

 private:
  SharedCatalog source_;
  SharedCatalog made_;           // entries without chunks, or the source
  std::vector<Recipe> recipes_;  // of its entries; none where they are the source's
  EntryIndex index_;
  std::vector<std::vector<size_t>> units_;  // of tensors that are made together
  std::map<size_t, size_t> unit_of_;        // by position
  std::shared_ptr<const void> memory_;      // of the source
  mutable std::mutex mutex_;                // guards what follows
  mutable std::map<uint32_t, std::shared_ptr<PrivateMapping>> mappings_;
};

/// Tensors that recipes make of `source`. `memory` owns that of the source's files that are in it.
TensorSet made_tensors(SharedCatalog source, std::vector<StateTensor> tensors,
                       std::shared_ptr<const void> memory = nullptr);

}  // namespace ferry
