// IDX files, in which MNIST comes: arrays of bytes after a header.
//
// Source: LeCun, Cortes and Burges, "The MNIST database of handwritten digits" (the page that the
// files came from): a big-endian magic number, whose lowest byte counts axes and whose second
// lowest is 8 for bytes, then the length of each axis, then the elements.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::mnist {

struct IdxArray {
  std::vector<int64_t> shape;
  std::vector<uint8_t> elements;
};

/// Reads FILE or, where that is missing, FILE.gz. not_found; corrupt, naming the file, for what is
/// no IDX file of bytes with so many axes, or has more or fewer bytes than its header says.
IdxArray read_idx(const FileSystem& files, const std::string& path, int axes);

}  // namespace ferry::mnist
