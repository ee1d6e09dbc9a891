#include "ckpt/format/torch/torch_file.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/torch/torch_legacy.h"

namespace ferry {
namespace {

// A pickle may share a part among many paths; no checkpoint names more things than this.
constexpr size_t kMostNames = size_t{1} << 22;
constexpr size_t kMostDepth = 64;
constexpr size_t kMostKeyBytes = 4096;
constexpr size_t kMostCatalogBytes = size_t{512} << 20;  // of names and paths in all

bool has_row_major_strides(const StoredTensor& tensor) {
  int64_t expected = 1;
  for (size_t axis = tensor.shape.size(); axis-- > 0;) {
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

template <typename Visit>
void for_each_held(const Value& value, Visit visit) {
  for (size_t i = 0; i < value.size(); ++i) visit(value[i].node());
  for (size_t i = 0; i < value.pair_count(); ++i) visit(value.pair_value(i).node());
}

// Which nodes of a document are, or hold, tensors. Values refer to others in any direction and may
// form cycles, so that the property is spread from the tensors to what holds them.
std::vector<bool> nodes_with_tensors(const Document& document, const std::string& path) {
  const size_t count = document.nodes.size();
  std::vector<bool> with(count, false);
  std::vector<uint32_t> first(count + 1, 0);  // holders[first[n]..first[n + 1]) hold node n
  std::vector<uint32_t> todo;
  uint64_t references = 0;
  for (uint32_t node = 0; node < count; ++node) {
    for_each_held(document.root_at(node), [&](uint32_t held) {
      ++first.at(held + 1);
      ++references;
    });
  }
  if (references > UINT32_MAX) {
    fail(ErrorKind::exhausted, "{}: its values refer to each other {} times", path, references);
  }
  for (size_t node = 0; node < count; ++node) first[node + 1] += first[node];
  std::vector<uint32_t> holders(first[count]);
  std::vector<uint32_t> next(first.begin(), first.end() - 1);
  for (uint32_t node = 0; node < count; ++node) {
    const Value value = document.root_at(node);
    for_each_held(value, [&](uint32_t held) { holders[next[held]++] = node; });
    if (value.kind() == ValueKind::tensor) with[node] = true, todo.push_back(node);
  }
  while (!todo.empty()) {
    const uint32_t node = todo.back();
    todo.pop_back();
    for (uint32_t i = first[node]; i < first[node + 1]; ++i) {
      if (with[holders[i]]) continue;
      with[holders[i]] = true;
      todo.push_back(holders[i]);
    }
  }
  return with;
}

class Walker {
 public:
  Walker(const TorchArchive& archive, Catalog& catalog, Extent pickle)
      : archive_(archive),
        catalog_(catalog),
        pickle_(pickle),
        with_tensors_(nodes_with_tensors(*archive.pickle, catalog.files[0].path)) {}

  void walk(const Value& value) {
    if (++names_ > kMostNames || path_.size() > kMostDepth || name_.size() > kMostKeyBytes) {
      fail(ErrorKind::exhausted, "{}: its structure has more names than any checkpoint, at '{}'",
           path(), name_.substr(0, 200));
    }
    if (value.kind() == ValueKind::tensor) {
      add_tensor(*value.tensor());
    } else if (!with_tensors_.at(value.node())) {
      if (nameable_) {
        charge(name_.size() + path_.size() * sizeof(std::string) + name_.size());
        catalog_.objects.push_back({name_, pickle_, path_});
      }
    } else {
      // A part of itself: its tensors have been named already.
      if (std::find(open_.begin(), open_.end(), value.node()) != open_.end()) return;
      open_.push_back(value.node());
      for (size_t i = 0; i < value.size(); ++i) {
        // What a dict is as an object, next to its items: _metadata, which holds versions of
        // modules.
        const bool is_state = value.pair_count() > 0 && !with_tensors_.at(value[i].node());
        if (!is_state) step(std::to_string(i), true, value[i]);
      }
      for (size_t i = 0; i < value.pair_count(); ++i) {
        const Value key = value.pair_key(i);
        step(key_text(key), key.string() || key.integer(), value.pair_value(i));
      }
      open_.pop_back();
    }
  }

 private:
  const std::string& path() const { return catalog_.files[0].path; }

  // A deep part that is shared among many paths has a long name for each of them.
  void charge(size_t bytes) {
    held_bytes_ += bytes;
    if (held_bytes_ <= kMostCatalogBytes) return;
    fail(ErrorKind::exhausted, "{}: its names take more memory than those of any checkpoint",
         path());
  }

  void step(std::string part, bool nameable, const Value& value) {
    const size_t length = name_.size();
    const bool was_nameable = std::exchange(nameable_, nameable_ && nameable);
    if (!name_.empty()) name_ += '.';
    name_ += part;
    path_.push_back(std::move(part));
    walk(value);
    path_.pop_back();
    name_.resize(length);
    nameable_ = was_nameable;
  }

  void add_tensor(const StoredTensor& tensor) {
    if (!tensors_.insert(name_).second) {
      fail(ErrorKind::corrupt, "{}: two tensors are named {}", path(), name_);
    }
    charge(2 * name_.size() + sizeof(Entry) + sizeof(Chunk));
    Entry entry{name_, tensor.dtype, tensor.shape, {}, Role::model};
    entry.chunks.push_back(
        stored_chunk(archive_, tensor, 0, fmt::format("tensor {} of {}", name_, path())));
    catalog_.entries.push_back(std::move(entry));
  }

  const TorchArchive& archive_;
  Catalog& catalog_;
  Extent pickle_;
  std::vector<bool> with_tensors_;
  std::vector<uint32_t> open_;
  std::vector<std::string> path_;
  std::string name_;
  bool nameable_ = true;  // every key on the path can be looked up by its text
  size_t names_ = 0;
  size_t held_bytes_ = 0;
  std::unordered_set<std::string> tensors_;
};

}  // namespace

std::string key_text(const Value& key) {
  if (const auto text = key.string()) return std::string(*text);
  if (const auto number = key.integer()) return std::to_string(*number);
  if (key.kind() == ValueKind::global) return key.text();
  if (key.kind() != ValueKind::tuple) return "?";
  std::string text = "(";
  for (size_t i = 0; i < std::min<size_t>(key.size(), 16); ++i) {
    if (i > 0) text += ", ";
    text += key[i].kind() == ValueKind::tuple ? "(...)" : key_text(key[i]);
  }
  return text + ")";
}

Chunk stored_chunk(const TorchArchive& archive, const StoredTensor& tensor, uint32_t file,
                   const std::string& what) {
  Chunk chunk{{Box::whole(tensor.shape)}, {}, {}};
  chunk.extent.file = file;
  const int64_t elements = element_count(tensor.shape, what);
  if (elements == 0) return chunk;  // its storage may be missing
  check_math_bits(tensor.math, tensor.dtype, what);
  chunk.math = tensor.math;
  const TorchArchive::Record record = archive.storage(tensor, what);
  const auto element_bytes = static_cast<uint64_t>(size_bytes(tensor.dtype));
  int64_t span = 1;  // elements from the first to the last
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    span += (tensor.shape[axis] - 1) * tensor.strides[axis];  // checked by storage()
  }
  if (!has_row_major_strides(tensor)) chunk.strides = tensor.strides;
  chunk.extent.offset =
      record.offset + static_cast<uint64_t>(tensor.storage_offset) * element_bytes;
  chunk.extent.length = static_cast<uint64_t>(span) * element_bytes;
  return chunk;
}

TorchArchive read_torch_file(const ReadableFile& file, uint64_t* pickle_bytes) {
  if (pickle_bytes) *pickle_bytes = 0;
  ItemReader item(file, 0, file.size());
  if (is_legacy_torch_file(item.bytes(0, std::min<uint64_t>(item.length(), 32)))) {
    return read_legacy_torch_file(item, pickle_bytes);
  }
  return read_torch_archive(file, 0, file.size());
}

Catalog open_torch_file(std::shared_ptr<const FileSystem> file_system, const std::string& path) {
  Catalog catalog;
  catalog.file_system = file_system;
  const auto file = file_system->open(path);
  catalog.add_file(path, file->size());
  uint64_t pickle_bytes = 0;
  const TorchArchive archive = read_torch_file(*file, &pickle_bytes);
  Extent pickle;
  pickle.length = pickle_bytes > 0 ? pickle_bytes : file->size();
  Walker(archive, catalog, pickle).walk(archive.pickle->root());
  return catalog;
}

}  // namespace ferry
