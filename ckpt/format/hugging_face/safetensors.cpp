#include "ckpt/format/hugging_face/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "ckpt/base/checked.h"
#include "ckpt/format/hugging_face/json_events.h"

namespace ferry {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths are read as stored");

constexpr size_t kMaxRank = 64;                          // as PyTorch
constexpr uint64_t kGitLfsPointer = 0x206e6f6973726576;  // "version ", the pointer's first bytes

// Valid in the format, but of elements that no whole number of bytes holds.
bool is_unsupported_dtype(std::string_view name) { return name == "F6_E2M3" || name == "F6_E3M2"; }

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  uint64_t begin = 0, end = 0;  // relative to the end of the header
};

// Takes the header apart. State is where in the header the next event belongs.
class HeaderEvents final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  std::map<std::string, std::string> metadata;
  std::vector<TensorInfo> tensors;

 private:
  enum class State {
    start,
    top,
    metadata_value,
    metadata,
    metadata_string,
    tensor_value,
    tensor,
    dtype,
    shape_array,
    shape,
    offsets_array,
    offsets,
    done,
  };

  bool take_object() override {
    switch (state_) {
      case State::start:
        state_ = State::top;
        return true;
      case State::metadata_value:
        state_ = State::metadata;
        return true;
      case State::tensor_value:
        state_ = State::tensor;
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return true;
      default:
        refuse("an object");
    }
  }

  bool end_of_object() override {
    switch (state_) {
      case State::tensor:
        finish_tensor();
        [[fallthrough]];
      case State::metadata:
        state_ = State::top;
        return true;
      default:
        state_ = State::done;
        return true;
    }
  }

  bool take_key(std::string& name) override {
    if (state_ == State::top) {
      if (name == SafetensorsHeader::kMetadataKey) {
        once(has_metadata_, name);
        state_ = State::metadata_value;
      } else {
        tensors.emplace_back().name = std::move(name);
        state_ = State::tensor_value;
      }
    } else if (state_ == State::metadata) {
      if (metadata.count(name)) {
        fail(ErrorKind::corrupt, "{}: {} holds the key '{}' twice", what(),
             SafetensorsHeader::kMetadataKey, name);
      }
      metadata_key_ = std::move(name);
      state_ = State::metadata_string;
    } else if (name == "dtype") {
      once(has_dtype_, name);
      state_ = State::dtype;
    } else if (name == "shape") {
      once(has_shape_, name);
      state_ = State::shape_array;
    } else if (name == "data_offsets") {
      once(has_offsets_, name);
      state_ = State::offsets_array;
    } else {
      skip();  // fields of later versions
    }
    return true;
  }

  bool take_array() override {
    if (state_ == State::shape_array) {
      state_ = State::shape;
    } else if (state_ == State::offsets_array) {
      state_ = State::offsets;
      offset_count_ = 0;
    } else {
      refuse("an array");
    }
    return true;
  }

  bool end_of_array() override {
    if (state_ == State::offsets && offset_count_ != 2) {
      fail(ErrorKind::corrupt, "{}: tensor {}: data_offsets must hold two numbers, not {}", what(),
           current().name, offset_count_);
    }
    state_ = State::tensor;
    return true;
  }

  bool take_number(uint64_t value) override {
    if (state_ == State::shape) {
      if (value > INT64_MAX) refuse("a number beyond 2^63");
      if (current().shape.size() == kMaxRank) {
        fail(ErrorKind::unsupported, "{}: tensor {} has more than {} axes", what(), current().name,
             kMaxRank);
      }
      current().shape.push_back(static_cast<int64_t>(value));
    } else if (state_ == State::offsets) {
      (offset_count_ == 0 ? current().begin : current().end) = value;
      ++offset_count_;
    } else {
      refuse("a number");
    }
    return true;
  }

  bool take_string(std::string& value) override {
    if (state_ == State::metadata_string) {
      metadata.emplace(std::move(metadata_key_), std::move(value));
      state_ = State::metadata;
    } else if (state_ == State::dtype) {
      current().dtype = parse_dtype(value);
      state_ = State::tensor;
    } else {
      refuse("a string");
    }
    return true;
  }

  bool take_null() override {
    if (state_ != State::metadata_value) refuse("null");
    state_ = State::top;
    return true;
  }

  std::string expected() const override {
    switch (state_) {
      case State::start:
      case State::done:
        return "the header must be one object";
      case State::metadata_value:
      case State::metadata:
      case State::metadata_string:
        return fmt::format("{} must map strings to strings", SafetensorsHeader::kMetadataKey);
      case State::tensor_value:
        return fmt::format("tensor {}: must be described by an object", tensors.back().name);
      case State::dtype:
        return fmt::format("tensor {}: dtype must be a string", tensors.back().name);
      case State::shape_array:
      case State::shape:
        return fmt::format("tensor {}: shape must be an array of whole numbers",
                           tensors.back().name);
      default:
        return fmt::format("tensor {}: data_offsets must be two whole numbers",
                           tensors.empty() ? "" : tensors.back().name);
    }
  }

  DType parse_dtype(const std::string& name) const {
    const std::optional<DType> dtype = dtype_from_safetensors(name);
    if (dtype && *dtype != DType::c128) return *dtype;
    fail(is_unsupported_dtype(name) ? ErrorKind::unsupported : ErrorKind::corrupt,
         "{}: tensor {} is of dtype '{}', which {}", what(), tensors.back().name, name,
         is_unsupported_dtype(name) ? "has elements of six bits, which are not supported"
                                    : "the format does not have");
  }

  void finish_tensor() const {
    if (has_dtype_ && has_shape_ && has_offsets_) return;
    fail(ErrorKind::corrupt, "{}: tensor {} has no {}", what(), tensors.back().name,
         !has_dtype_ ? "dtype" : (!has_shape_ ? "shape" : "data_offsets"));
  }

  void once(bool& seen, const std::string& name) const {
    if (seen) fail(ErrorKind::corrupt, "{}: the key {} is there twice", what(), name);
    seen = true;
  }

  TensorInfo& current() { return tensors.back(); }

  State state_ = State::start;
  std::string metadata_key_;
  bool has_metadata_ = false, has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offset_count_ = 0;
};

void check_names(const std::vector<TensorInfo>& tensors, const std::string& what) {
  const auto less = [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; };
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  if (!std::is_sorted(order.begin(), order.end(), less))
    std::sort(order.begin(), order.end(), less);
  const auto twice = std::adjacent_find(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tensors[a].name == tensors[b].name;
  });
  if (twice != order.end()) {
    fail(ErrorKind::corrupt, "{}: tensor {} is in the header twice", what, tensors[*twice].name);
  }
}

// The format counts 4-bit floats; an element here is a byte of two of them.
void halve_packed_axis(TensorInfo& tensor, const std::string& what) {
  if (tensor.dtype != DType::f4x2) return;
  if (tensor.shape.empty() || tensor.shape.back() % 2 != 0) {
    fail(ErrorKind::corrupt,
         "{}: tensor {} of dtype F4 and shape {}: its last axis must be even, for two elements "
         "share a byte",
         what, tensor.name, to_string(tensor.shape));
  }
  tensor.shape.back() /= 2;
}

uint64_t tensor_bytes(const Entry& entry, const std::string& what) {
  try {
    return static_cast<uint64_t>(entry.bytes());
  } catch (const Error& error) {
    fail(error.kind(), "{}: tensor {}", what, error.what());
  }
}

Entry make_entry(TensorInfo&& tensor, uint64_t data_offset, uint32_t file_index,
                 const std::string& what) {
  halve_packed_axis(tensor, what);
  Entry entry;
  entry.name = std::move(tensor.name);
  entry.dtype = tensor.dtype;
  entry.shape = std::move(tensor.shape);
  const uint64_t bytes = tensor_bytes(entry, what);
  if (bytes != tensor.end - tensor.begin) {
    fail(
        ErrorKind::corrupt,
        "{}: tensor {} of dtype {} and shape {} takes {} bytes, but its data_offsets [{}, {}) hold "
        "{}",
        what, entry.name, safetensors_name(entry.dtype), to_string(entry.shape), bytes,
        tensor.begin, tensor.end, tensor.end - tensor.begin);
  }
  Chunk& chunk = entry.chunks.emplace_back();
  chunk.box = Box::whole(entry.shape);
  chunk.extent.file = file_index;
  chunk.extent.offset = data_offset + tensor.begin;
  chunk.extent.length = bytes;
  return entry;
}

// The tensors, in the order of their bytes, must fill the data without hole or overlap.
void check_order(std::vector<TensorInfo>& tensors, uint64_t data_bytes, const std::string& what) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != end || tensor.end < tensor.begin) {
      fail(ErrorKind::corrupt,
           "{}: tensor {} has data_offsets [{}, {}) where the data is used up to {}; the header is "
           "damaged or was made with a hole or an overlap",
           what, tensor.name, tensor.begin, tensor.end, end);
    }
    end = tensor.end;
  }
  if (end != data_bytes) {
    fail(ErrorKind::corrupt,
         "{}: the header describes {} bytes of data, the file holds {}; the file is {}", what, end,
         data_bytes, end > data_bytes ? "truncated; copy or download it again" : "too long");
  }
}

std::string read_header_text(const ReadableFile& file) {
  const std::string& what = file.path();
  if (file.size() < SafetensorsHeader::kLengthBytes) {
    fail(ErrorKind::corrupt, "{}: {} bytes are too few for a safetensors file", what, file.size());
  }
  uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length == kGitLfsPointer) {
    fail(ErrorKind::corrupt,
         "{}: is a Git LFS pointer, not the file it stands for; fetch that with git lfs pull",
         what);
  }
  if (length > SafetensorsHeader::kMostBytes ||
      length > file.size() - SafetensorsHeader::kLengthBytes) {
    fail(ErrorKind::corrupt,
         "{}: its first 8 bytes give a header of {} bytes, where at most {} can be; it is "
         "truncated or not a safetensors file",
         what, length,
         std::min(SafetensorsHeader::kMostBytes, file.size() - SafetensorsHeader::kLengthBytes));
  }
  std::string text(length, '\0');
  file.read(SafetensorsHeader::kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.front() != '{') {
    fail(ErrorKind::corrupt,
         "{}: byte 8 must open the header with '{{'; this is not a safetensors file", what);
  }
  return text;
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ReadableFile& file, uint32_t file_index) {
  const std::string text = read_header_text(file);
  HeaderEvents events(file.path());
  parse_events(text, events);
  SafetensorsHeader header;
  header.metadata = std::move(events.metadata);
  header.data_offset = SafetensorsHeader::kLengthBytes + text.size();
  check_names(events.tensors, file.path());
  check_order(events.tensors, file.size() - header.data_offset, file.path());
  header.entries.reserve(events.tensors.size());
  for (TensorInfo& tensor : events.tensors) {
    header.entries.push_back(
        make_entry(std::move(tensor), header.data_offset, file_index, file.path()));
  }
  return header;
}

}  // namespace ferry
