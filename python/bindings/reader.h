// Tensors that Python reads: of a checkpoint, or of a model that is made of one.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/core/catalog.h"
#include "ckpt/engine/engine.h"
#include "ckpt/memory/load.h"
#include "python/bindings/array.h"

namespace ferry::python {

/// Tensors until they are closed. Used under the GIL, but for the set, of which each reading has a
/// copy.
class Reader {
 public:
  /// `path` is for messages.
  Reader(TensorSet set, std::string path) : set_(std::move(set)), path_(std::move(path)) {}

  /// invalid once it is closed.
  const TensorSet& set() const;
  const std::string& path() const noexcept { return path_; }
  bool is_closed() const noexcept { return !set_; }
  void close() noexcept { set_.reset(); }

 private:
  std::optional<TensorSet> set_;
  std::string path_;
};

/// ferry.Tensor: one that is read when asked for.
struct LazyTensor {
  std::shared_ptr<Reader> reader;
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  Role role = Role::model;
};

/// A box of a tensor, and as which dtype it is read.
struct ReadRequest {
  std::string name;
  DType dtype = DType::f32;
  Box box;
};

/// All of them in parallel, without a copy where a tensor is in a file as it is asked for.
std::vector<Array> read(const Reader& reader, const std::vector<ReadRequest>& requests,
                        EngineOptions options, nanobind::handle progress);

/// "memory" and "threads" of a dict.
EngineOptions engine_options(nanobind::dict given);

std::optional<DType> dtype_or_none(nanobind::handle given);

}  // namespace ferry::python
