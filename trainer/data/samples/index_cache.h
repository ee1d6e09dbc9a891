// Index arrays on disk, shared with Megatron-LM: in one folder, for each dataset the files
// HASH-CLASS-SPLIT-description.txt and HASH-CLASS-SPLIT-ARRAY.npy, where HASH is the MD5 of the
// description, which contains everything that the arrays depend on except the tokens. Files with
// another description, type or shape, or left half-written by a killed process, count as missing.
// Callers validate the arrays' contents.
//
// Source: megatron/core/datasets/gpt_dataset.py, blended_dataset.py; numpy's "NPY format".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/data/documents/file_bytes.h"

namespace ferry {

// Descriptions of sample orders, exactly as Python's json module writes Megatron-LM's: their MD5 is
// part of the file names.

/// A JSON object over several lines, indented by four.
class Description {
 public:
  /// `json`: the value, formatted as on its own.
  void add(std::string_view key, std::string_view json);
  std::string text() const;

 private:
  std::string members_;
};

/// A JSON array, formatted likewise; "[]" if empty.
class DescriptionList {
 public:
  void add(std::string_view json);
  std::string text() const;

 private:
  std::string values_;
};

/// A JSON string in ASCII.
std::string quoted(std::string_view text);
/// A number as Python prints it, with the fewest digits that round-trip: "1.0", "1e-05".
std::string number(double value);
/// The tokenizer's object (DataOptions::tokenizer), reformatted. invalid if it is not a JSON
/// object.
std::string json_of_tokenizer(const std::string& json);

/// An array that was built or is a mapped file.
template <typename T>
class IndexArray {
 public:
  IndexArray() = default;
  explicit IndexArray(std::vector<T> values) : built_(std::move(values)), values_(built_) {}
  /// The values from byte `offset` on, which must be aligned.
  IndexArray(FileBytes file, size_t offset) : file_(std::move(file)) {
    const std::span<const std::byte> bytes = file_->bytes().subspan(offset);
    values_ = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  std::span<const T> values() const noexcept { return values_; }

 private:
  std::vector<T> built_;
  std::optional<FileBytes> file_;
  std::span<const T> values_;  // points into the members above
};

/// The NPY header of an array in C order: `type` as "<i4".
std::string npy_header(std::string_view type, std::span<const int64_t> shape);

template <typename T>
inline constexpr std::string_view kNpyType = "";
template <>
inline constexpr std::string_view kNpyType<int16_t> = "<i2";
template <>
inline constexpr std::string_view kNpyType<int32_t> = "<i4";
template <>
inline constexpr std::string_view kNpyType<uint32_t> = "<u4";
template <>
inline constexpr std::string_view kNpyType<int64_t> = "<i8";

/// The files of one dataset.
class IndexCache {
 public:
  /// `folder` need not exist. `kind`: "GPTDataset-train".
  IndexCache(std::shared_ptr<const FileSystem> file_system, std::string folder,
             const std::string& kind, std::string description);

  /// "FOLDER/HASH-GPTDataset-train-NAME"
  std::string path(std::string_view name) const;

  /// Whether the description exists and is the same.
  bool is_there() const;

  /// The array NAME.npy; empty if it is missing, truncated, or of another type or shape.
  template <typename T>
  std::optional<IndexArray<T>> load(std::string_view name, std::span<const int64_t> shape) const {
    size_t offset = 0;
    std::optional<FileBytes> file = load_file(name, npy_header(kNpyType<T>, shape), &offset);
    if (!file || (file->bytes().size() - offset) % sizeof(T) != 0) return std::nullopt;
    IndexArray<T> array(std::move(*file), offset);
    int64_t elements = 1;
    for (const int64_t length : shape) elements *= length;
    if (std::ssize(array.values()) != elements) return std::nullopt;
    return array;
  }

  /// An array to store.
  struct File {
    std::string name;
    std::string header;
    std::span<const std::byte> bytes;
  };
  template <typename T>
  static File file(std::string name, std::span<const int64_t> shape, const IndexArray<T>& array) {
    return {std::move(name), npy_header(kNpyType<T>, shape), std::as_bytes(array.values())};
  }
  /// Replaces all files of the dataset: each appears complete and on disk, the description last.
  /// Does nothing while another process stores the same. io if the folder cannot be written.
  void store(std::initializer_list<File> arrays) const;

 private:
  std::optional<FileBytes> load_file(std::string_view name, const std::string& header,
                                     size_t* offset) const;

  std::shared_ptr<const FileSystem> file_system_;
  std::string folder_;
  std::string base_;
  std::string description_;
};

}  // namespace ferry
