// Files that torch.save wrote before PyTorch 1.6 (and writes still on request): pickles in a row,
// then the storages.
//
// 1. Pickles: the number 0x1950a86a20f9469cfc6c; the protocol, 1001; a dict about the system; the
//    value; the list of the storages' keys.
// 2. For each key: int64 number of elements, then the elements.
//
// Source: torch/serialization.py (_legacy_save).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/archive/zip_directory.h"

namespace ferry {

/// True for the beginning of such a file.
bool is_legacy_torch_file(std::string_view first_bytes);

/// Reads it as if it were an archive: storages become the records "data/<key>", without CRC.
/// `pickle_bytes`, if given, receives the length of the pickles.
TorchArchive read_legacy_torch_file(ItemReader& item, uint64_t* pickle_bytes = nullptr);

/// The value alone, of an item that may end after the pickles.
std::shared_ptr<const Document> read_legacy_value(ItemReader& item);

}  // namespace ferry
