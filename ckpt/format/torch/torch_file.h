// A lone file that torch.save wrote (.pt, .pth, .bin), as a catalog.
//
// Tensors are named by their path in the pickle, keys joined by '.': {"model": {"w": tensor}} gives
// `model.w`; list and tuple elements are named by their position, attributes by their name.
// Everything that holds no tensor is an object under its own path.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Catalog of all tensors in the file, in the order of the pickle. Tensors that share a storage
/// stay separate entries over the same bytes. corrupt when the file is not a torch.save file or two
/// tensors have one name; exhausted when its structure names too many.
Catalog open_torch_file(std::shared_ptr<const FileSystem> file_system, const std::string& path);

/// A whole file: an archive, or the form of PyTorch before 1.6 (pickles in a row, then storages).
/// `pickle_bytes`, if given, receives the length of that form's pickles, 0 for an archive.
TorchArchive read_torch_file(const ReadableFile& file, uint64_t* pickle_bytes = nullptr);

/// The chunk for the whole tensor `tensor` of an archive in file number `file`; its box is that of
/// the tensor's own shape, strides are given where it is not row-major. `what` names the tensor for
/// messages. corrupt when it leaves its storage.
Chunk stored_chunk(const TorchArchive& archive, const StoredTensor& tensor, uint32_t file,
                   const std::string& what);

/// Text of a dict's key as part of a name: strings as they are, numbers in decimal, others as
/// Python prints them, as far as needed ("(torch.bfloat16, torch.float32)").
std::string key_text(const Value& key);

}  // namespace ferry
