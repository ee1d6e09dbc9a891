// A lone file that torch.save wrote (.pt, .pth, .bin), as a catalog.
//
// Tensors are named by their path in the pickle, keys joined by '.': {"model": {"w": tensor}} gives
// `model.w`; list and tuple elements are named by their position. Everything that holds no tensor
// is an object under its own path.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ckpt/core/catalog.h"
#include "ckpt/core/value.h"
#include "ckpt/format/torch_archive.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// Catalog of all tensors in the file. Tensors that share a storage stay separate entries over the
/// same bytes. corrupt when the file is no torch archive; unsupported for names that stand twice.
Catalog open_torch_file(std::shared_ptr<const FileSystem> file_system, const std::string& path);

/// The chunk for the whole tensor `tensor` of an archive that lies in file number `file`; its box
/// is that of the tensor's own shape, strides are given where it is not row-major. `what` names the
/// tensor for messages. corrupt when it leaves its storage.
Chunk stored_chunk(const TorchArchive& archive, const StoredTensor& tensor, uint32_t file,
                   std::string_view what);

}  // namespace ferry
