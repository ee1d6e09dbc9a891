// Writes the `.metadata` pickle of a PyTorch distributed checkpoint, as PyTorch 2.11 does.
//
// Source: torch/distributed/checkpoint/metadata.py, filesystem.py (_StorageInfo, finish),
// default_planner.py (create_default_global_save_plan: order and index hints).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// What is stored, in the order in which the metadata lists it.
struct DcpContent {
  /// A run of bytes of one of the data files.
  struct Place {
    uint32_t file = 0;  // index into `files`
    uint64_t offset = 0;
    uint64_t length = 0;
    bool zstd = false;  // through the transform stream.zstd/1
  };
  struct Chunk {
    Box box;
    Place place;
  };
  /// A tensor in chunks, or a byte object.
  struct Entry {
    std::string name;
    bool is_object = false;
    DType dtype = DType::f32;
    Dims shape;
    std::vector<Chunk> chunks;
    Place place;  // of an object
  };

  std::vector<std::string> files;  // relative to the checkpoint's folder: "__0_0.distcp"
  std::vector<Entry> entries;
  LoadedValue planner_data;  // PyTorch's own planner: a dict of paths by name; none in torch_dist
  std::string save_id;       // a UUID
};

/// The pickle. Linear in the chunks: some 100 bytes each, and no more memory than the pickle.
/// invalid when a chunk has another rank than its tensor or names a file that is not there.
std::string write_dcp_metadata(const DcpContent& content);

/// The same under a save_id that follows from all else, which it is set to.
std::string write_dcp_metadata_with_id(DcpContent& content);

}  // namespace ferry
