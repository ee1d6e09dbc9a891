// Tensors of a Python program as regions of memory that can be saved.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/memory/region.h"
#include "python/bindings/cuda_stager.h"

namespace ferry::python {

struct GivenTensors {
  std::vector<ConstRegion> regions;
  nanobind::list owners;  // of the regions' memory
  /// Where work on tensors of a CUDA device may still be queued.
  std::set<DeviceStream> streams;
  bool on_devices = false;  // whether there is any such tensor
};

/// The tensors of a mapping by name: torch.Tensor, DTensor, ferry.Shard, NumPy arrays, and objects
/// with __cuda_array_interface__, __dlpack__ or the buffer protocol. What is not contiguous is
/// copied. invalid for what is not a tensor, unsupported for an element type or a device that is
/// none of ferry's, naming the tensor. `stager` is used where memory of a CUDA device is among
/// them.
GivenTensors given_tensors(nanobind::handle tensors, CudaStager& stager);

/// The pairs of a mapping; TypeError, naming the argument, for what is none.
nanobind::object items_of(const char* argument, nanobind::handle mapping);
/// The name of "a tensor" or "an object"; invalid for what is not a str, or one that is not text.
std::string name_of(const char* what, nanobind::handle given);

/// The archive that torch.save would write of a value of plain data: None, bool, int, float, str,
/// bytes, list, tuple, dict, OrderedDict, set and argparse.Namespace. unsupported for all else,
/// saying where in the value it is.
std::string archive_of(const std::string& name, nanobind::handle value);

}  // namespace ferry::python
