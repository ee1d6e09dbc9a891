// Files and folders of other programs that hold weights in forms which are not read here: what they
// are, and what to do. For messages; what is looked at is names and first bytes.
//
// Source: llama.cpp ggml/include/gguf.h, the HDF5 format specification, TensorFlow's checkpoints
// and SavedModel, Orbax' documentation, torch/csrc/jit/serialization, peft utils/constants.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// "is a GGUF file of llama.cpp: ...; convert the model that it was made from"; empty: not known.
std::string other_file(const ReadableFile& file);

/// The same of a folder that holds `names`.
std::string other_folder(const FileSystem& file_system, const std::string& folder,
                         const std::vector<std::string>& names);

/// Of a folder with a PEFT adapter: the model that it adapts ("" where that is not said). Nothing
/// where it holds none.
std::optional<std::string> adapter_base(const FileSystem& file_system, const std::string& folder);

/// What such an adapter is, and what to do.
std::string what_adapter(const std::string& base);

}  // namespace ferry
