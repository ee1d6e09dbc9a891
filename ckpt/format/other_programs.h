// Files and folders of other programs that hold weights in forms which are not read here: what they
// are, and what to do. For messages; judged by names and first bytes.
//
// Source: llama.cpp ggml/include/gguf.h, the HDF5 format specification, TensorFlow's checkpoints
// and SavedModel, Orbax' documentation, torch/csrc/jit/serialization, peft utils/constants.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// "is a GGUF file of llama.cpp: ...; convert the model that it was made from"; empty: not known.
std::string other_file(const ReadableFile& file);

/// The same of a folder that holds `names`.
std::string other_folder(const FileSystem& file_system, const std::string& folder,
                         const std::vector<std::string>& names);

/// True of names of files that DeepSpeed's pipeline engine writes, one for each layer.
bool has_pipeline_layers(const std::vector<std::string>& names);

/// For a URL (s3://, gs://, hf://, ...): that it is not a local file, and how to copy it. Empty for
/// all else.
std::string what_url(std::string_view path);

/// For a path that leads nowhere: unsupported for a URL, else not_found, which says what to do
/// where it may name a model of the Hugging Face hub.
[[noreturn]] void fail_missing(const FileSystem& file_system, const std::string& path);

/// The model that a folder's PEFT adapter is for ("" where that is not said). Nothing where it
/// holds no adapter.
std::optional<std::string> adapter_base(const FileSystem& file_system, const std::string& folder);

/// What such an adapter is, and what to do.
std::string what_adapter(const std::string& base);

}  // namespace ferry
