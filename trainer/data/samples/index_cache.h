// Index arrays on disk, where Megatron-LM finds them and leaves its own: in one folder, for each
// dataset the files HASH-CLASS-SPLIT-description.txt and HASH-CLASS-SPLIT-ARRAY.npy, with HASH the
// MD5 of the description, which says all that the arrays depend on but the tokens themselves.
//
// What is found is used only when it is what it should be: another description, an array of another
// type or shape, one that a killed process left half-written, count as not there. What the arrays
// hold is for their owners to check.
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

// Descriptions of sample orders, character by character as Python's json writes Megatron-LM's:
// their MD5 names the files of a cache.

/// A JSON object over several lines, indented by four.
class Description {
 public:
  /// `json`: the value, over as many lines as if it stood alone.
  void add(std::string_view key, std::string_view json);
  std::string text() const;

 private:
  std::string members_;
};

/// "[", the values, "]" likewise; "[]" of none.
class DescriptionList {
 public:
  void add(std::string_view json);
  std::string text() const;

 private:
  std::string values_;
};

/// A string as JSON, ASCII alone.
std::string quoted(std::string_view text);
/// A number as Python prints it: the fewest digits that give it back, "1.0", "1e-05".
std::string number(double value);
/// The tokenizer's object as it was given (DataOptions::tokenizer), written again. invalid for what
/// is no JSON object.
std::string json_of_tokenizer(const std::string& json);

/// An array that was built, or is a mapped file.
template <typename T>
class IndexArray {
 public:
  IndexArray() = default;
  explicit IndexArray(std::vector<T> values) : built_(std::move(values)), values_(built_) {}
  /// The values after `offset` bytes, which must be aligned.
  IndexArray(FileBytes file, size_t offset) : file_(std::move(file)) {
    const std::span<const std::byte> bytes = file_->bytes().subspan(offset);
    values_ = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  std::span<const T> values() const noexcept { return values_; }

 private:
  std::vector<T> built_;
  std::optional<FileBytes> file_;
  std::span<const T> values_;  // moves with what it points to
};

/// What NumPy writes before the elements of an array in C order: `type` as "<i4".
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
  /// `folder` may be missing. `kind`: "GPTDataset-train".
  IndexCache(std::shared_ptr<const FileSystem> file_system, std::string folder,
             const std::string& kind, std::string description);

  /// "FOLDER/HASH-GPTDataset-train-NAME"
  std::string path(std::string_view name) const;

  /// Whether the description is there and says the same.
  bool is_there() const;

  /// The array NAME.npy; nothing when it is missing, of another type or shape, or cut short.
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

  /// One array to be stored.
  struct File {
    std::string name;
    std::string header;
    std::span<const std::byte> bytes;
  };
  template <typename T>
  static File file(std::string name, std::span<const int64_t> shape, const IndexArray<T>& array) {
    return {std::move(name), npy_header(kNpyType<T>, shape), std::as_bytes(array.values())};
  }
  /// Replaces all files of the dataset: each appears whole and on disk, the description last. Does
  /// nothing while another process stores the same. io, when the folder cannot be written.
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
