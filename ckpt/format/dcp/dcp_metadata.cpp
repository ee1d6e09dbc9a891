#include "ckpt/format/dcp/dcp_metadata.h"

#include <functional>
#include <unordered_set>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr size_t kMostAxes = 64;  // as PyTorch

// torch.Size is a tuple once parsed; a parser that keeps it an object shows the tuple as its
// argument.
Value sequence_of(const Value& value) {
  const bool wrapped = value.kind() == ValueKind::object && value.size() == 1 &&
                       (value[0].kind() == ValueKind::tuple || value[0].kind() == ValueKind::list);
  return wrapped ? value[0] : value;
}

bool is_sequence(const Value& value) {
  return value.kind() == ValueKind::tuple || value.kind() == ValueKind::list;
}

Dims read_dims(const Value& value, std::string_view what, std::string_view name,
               std::string_view field) {
  const Value sequence = sequence_of(value);
  if (!is_sequence(sequence)) {
    fail(ErrorKind::corrupt, "{}: {} of '{}' is not a list of integers", what, field, name);
  }
  if (sequence.size() > kMostAxes) {
    fail(ErrorKind::corrupt, "{}: {} of '{}' has {} axes, more than PyTorch allows", what, field,
         name, sequence.size());
  }
  Dims dims;
  dims.reserve(sequence.size());
  for (size_t axis = 0; axis < sequence.size(); ++axis) {
    const auto number = sequence[axis].integer();
    if (!number || *number < 0) {
      fail(ErrorKind::corrupt, "{}: {} of '{}' is not a size or offset along axis {}", what, field,
           name, axis);
    }
    dims.push_back(*number);
  }
  return dims;
}

std::optional<DType> dtype_of(const Value& value) {
  std::string_view text = value.text();
  if (!text.starts_with("torch.")) return std::nullopt;
  text.remove_prefix(6);
  return dtype_from_torch(text);
}

// The state of TensorProperties is a tuple that starts with the dtype, in both of the modules that
// the class has lived in; releases before that had a plain attribute.
Value dtype_value(const Value& properties) {
  if (const Value dtype = properties.get("dtype")) return dtype;
  const auto first_of = [](const Value& state) {
    return is_sequence(state) && state.size() > 0 ? state[0] : Value();
  };
  for (size_t i = 0; i < properties.size(); ++i) {
    if (const Value dtype = first_of(properties[i])) return dtype;
  }
  for (size_t i = 0; i < properties.pair_count(); ++i) {
    if (const Value dtype = first_of(properties.pair_value(i))) return dtype;
  }
  return properties.size() > 0 ? properties[0] : Value();
}

// `items`: those of storage_data that no earlier tensor's chunks can use. Tensors of a hostile
// pickle may share one list of chunks.
DcpTensor read_tensor(const Value& storage, std::string_view name, size_t& items,
                      std::string_view what) {
  DcpTensor tensor;
  tensor.name = name;
  const Value dtype = dtype_value(storage.get("properties"));
  const auto known = dtype_of(dtype);
  if (!known) {
    fail(ErrorKind::unsupported, "{}: tensor '{}' has the element type '{}', which is unknown here",
         what, name, dtype.text());
  }
  tensor.dtype = *known;
  tensor.shape = read_dims(storage.get("size"), what, name, "the shape");
  const Value chunks = storage.get("chunks");
  if (!is_sequence(chunks)) {
    fail(ErrorKind::corrupt, "{}: tensor '{}' has no list of chunks", what, name);
  }
  if (chunks.size() > items) {
    fail(ErrorKind::corrupt,
         "{}: tensor '{}' has {} chunks, but only {} items are left in storage_data to hold them",
         what, name, chunks.size(), items);
  }
  items -= chunks.size();
  tensor.chunks.reserve(chunks.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    Box box{read_dims(chunks[i].get("offsets"), what, name, "a chunk's offset"),
            read_dims(chunks[i].get("sizes"), what, name, "a chunk's size")};
    if (box.offset.size() != tensor.shape.size() || box.size.size() != tensor.shape.size()) {
      fail(ErrorKind::corrupt,
           "{}: tensor '{}' has {} axes, but chunk {} an offset of {} and a size of {}", what, name,
           tensor.shape.size(), i, box.offset.size(), box.size.size());
    }
    tensor.chunks.push_back(std::move(box));
  }
  return tensor;
}

// "name[@domain]/version": only zstd, format 1, is a transform that PyTorch itself ships today.
bool read_zstd(const Value& descriptors, std::string_view what, std::string_view name) {
  if (!descriptors || descriptors.size() == 0) return false;
  const std::string_view first = descriptors[0].string().value_or("?");
  const bool known =
      descriptors.size() == 1 && (first == "stream.zstd/1" || first.starts_with("stream.zstd/1."));
  if (!known) {
    std::string all;
    for (size_t i = 0; i < descriptors.size() && i < 8; ++i) {
      if (i > 0) all += ", ";
      all += descriptors[i].string().value_or("?");
    }
    fail(ErrorKind::unsupported,
         "{}: '{}' is stored through the transform [{}]; only 'stream.zstd/1' can be undone here. "
         "Save the checkpoint again without it",
         what, name, all);
  }
  return true;
}

DcpItem read_item(const Value& info, std::string_view what, std::string_view name) {
  const auto file = info.get("relative_path").string();
  const auto offset = info.get("offset").integer();
  const auto length = info.get("length").integer();
  if (!file || !offset || !length || *offset < 0 || *length < 0) {
    fail(ErrorKind::corrupt, "{}: the place of '{}' in its data file is not given", what, name);
  }
  return {*file, static_cast<uint64_t>(*offset), static_cast<uint64_t>(*length),
          read_zstd(info.get("transform_descriptors"), what, name)};
}

}  // namespace

size_t DcpStorage::KeyHash::operator()(const Key& key) const noexcept {
  size_t hash = std::hash<std::string_view>()(key.name);
  if (!key.offset) return hash;
  for (const int64_t at : *key.offset) {
    hash = (hash ^ static_cast<uint64_t>(at)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return hash;
}

DcpStorage::DcpStorage(const Value& storage_data, std::string_view what) {
  if (storage_data.kind() != ValueKind::dict) {
    fail(ErrorKind::corrupt, "{}: its storage_data, which says where the data is, is missing",
         what);
  }
  items_.reserve(storage_data.pair_count());
  for (size_t i = 0; i < storage_data.pair_count(); ++i) {
    const Value index = storage_data.pair_key(i);
    const auto name = index.get("fqn").string();
    if (!name) fail(ErrorKind::corrupt, "{}: item {} of its storage_data has no name", what, i);
    Key key{*name, std::nullopt};
    if (const Value offset = index.get("offset")) {
      key.offset = read_dims(offset, what, *name, "an item's offset");
    }
    items_[std::move(key)] = read_item(storage_data.pair_value(i), what, *name);
  }
}

const DcpItem* DcpStorage::find(const Key& key) const {
  const auto at = items_.find(key);
  return at == items_.end() ? nullptr : &at->second;
}

const DcpItem* DcpStorage::find(std::string_view name, const Dims& offset) const {
  return find(Key{name, offset});
}

const DcpItem* DcpStorage::find(std::string_view name) const {
  return find(Key{name, std::nullopt});
}

DcpMetadata read_dcp_metadata(const Value& root, std::string_view what) {
  const Value state = root.get("state_dict_metadata");
  if (state.kind() != ValueKind::dict) {
    fail(
        ErrorKind::corrupt,
        "{}: no state_dict_metadata in it; the file is damaged or is not the metadata of a PyTorch "
        "distributed checkpoint",
        what);
  }
  DcpMetadata metadata;
  std::unordered_set<std::string_view> seen;
  size_t items = root.get("storage_data").pair_count();
  for (size_t i = 0; i < state.pair_count(); ++i) {
    const auto name = state.pair_key(i).string();
    if (!name) fail(ErrorKind::corrupt, "{}: key {} of its state_dict is not a string", what, i);
    if (!seen.insert(*name).second) {
      fail(ErrorKind::corrupt, "{}: it has '{}' twice", what, *name);
    }
    const Value storage = state.pair_value(i);
    if (storage.text().ends_with(".BytesStorageMetadata")) {
      metadata.objects.emplace_back(*name);
    } else if (storage.text().ends_with(".TensorStorageMetadata")) {
      metadata.tensors.push_back(read_tensor(storage, *name, items, what));
    } else {
      fail(ErrorKind::corrupt, "{}: '{}' is neither a tensor nor a byte object but '{}'", what,
           *name, storage.text());
    }
  }
  return metadata;
}

}  // namespace ferry
