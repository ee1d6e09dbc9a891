// Lays out files that torch.save would write: whole ones in memory, and the frame around payloads
// that are written later.
//
// Records, alignment (64 bytes from the archive's own start), descriptors and directory are those
// of PyTorch 2.11, byte for byte; zip64 fields where a length or position does not fit in 32 bits.
// Storages are numbered in the order in which the pickle mentions them.
//
// Source: torch/serialization.py (_save), caffe2/serialize/inline_container.cc (record layout),
// PKWARE APPNOTE 6.3 for zip and zip64.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// First part of all record names: the name of the file without its last extension, or this one for
/// an item of a .distcp file and any other archive inside a file.
inline constexpr std::string_view kTorchArchiveFolder = "archive";

/// An archive whose literals are known and whose payloads are not. All positions are bytes from the
/// archive's start; literals and payloads together cover it once.
struct TorchArchiveLayout {
  struct Literal {
    uint64_t offset = 0;
    std::string bytes;
  };
  struct Payload {
    std::string storage;  // its key in the value's document
    uint64_t offset = 0;
    uint64_t length = 0;
    // Where the CRC-32 of the payload belongs, 4 bytes little-endian each, in the literals: in the
    // record's descriptor and in the directory, both after the payload. Zero until it is put there:
    // PyTorch reads such archives, but unzip -t reports them.
    std::array<uint64_t, 2> crc32_offsets{};
  };

  uint64_t length = 0;
  std::vector<Literal> literals;  // rising offsets
  std::vector<Payload> payloads;  // rising offsets, none of them empty
};

/// The archive of `value`. Storages whose bytes its document holds (Document::storages) are part of
/// the literals, with their CRC-32; each of the others is a payload of as many bytes as the value's
/// tensors say. mismatch when two tensors disagree on the size of a storage.
TorchArchiveLayout lay_out_torch_archive(const Value& value,
                                         std::string_view folder = kTorchArchiveFolder);

/// The archive of one row-major tensor whose elements are one payload (none when it is empty): an
/// item of a .distcp file.
TorchArchiveLayout lay_out_torch_tensor(DType dtype, const Dims& shape,
                                        std::string_view folder = kTorchArchiveFolder);

/// A whole archive. invalid when the document lacks the bytes of a storage.
std::string write_torch_archive(const Value& value, std::string_view folder = kTorchArchiveFolder);

}  // namespace ferry
