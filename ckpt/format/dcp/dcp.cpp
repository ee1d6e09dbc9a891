#include "ckpt/format/dcp/dcp.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_metadata.h"
#include "ckpt/format/dcp/dcp_safetensors.h"
#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/torch/archive/torch_archive.h"

namespace ferry {
namespace {

constexpr uint64_t kMetadataLimit = uint64_t{1} << 30;

// Rank R of "__R_N.distcp"; -1 for a file of another name.
int64_t rank_of(std::string_view file) {
  if (!file.starts_with("__")) return -1;
  int64_t rank = 0;
  size_t at = 2;
  for (; at < file.size() && at < 12 && file[at] >= '0' && file[at] <= '9'; ++at) {
    rank = rank * 10 + (file[at] - '0');
  }
  return at > 2 && at < file.size() && file[at] == '_' ? rank : -1;
}

template <typename Range>
std::string first_few(const Range& items, size_t limit) {
  std::string text;
  size_t shown = 0;
  for (const auto& item : items) {
    if (shown == limit) return text + fmt::format(" and {} more", items.size() - shown);
    text += fmt::format("{}{}", shown++ ? ", " : "", item);
  }
  return text;
}

class Reader {
 public:
  Reader(std::shared_ptr<const FileSystem> file_system, std::string folder, std::string path)
      : folder_(std::move(folder)), path_(std::move(path)), blobs_(*file_system) {
    catalog_.file_system = std::move(file_system);
  }

  Catalog read(const Value& root) {
    const DcpMetadata metadata = read_dcp_metadata(root, path_);
    const DcpStorage storage(root.get("storage_data"), path_);
    find_items(metadata, storage);
    add_files();
    for (const DcpTensor& tensor : metadata.tensors) add_entry(tensor);
    for (const std::string& name : metadata.objects) add_object(name);
    check_disjoint_items();
    for (const Entry& entry : catalog_.entries) check_chunks(catalog_, entry);
    catalog_.locator = torch_zip_locator();
    return std::move(catalog_);
  }

 private:
  struct Span {
    uint32_t file;
    uint64_t offset, length;
    const std::string* name;
  };

  // Resolves every chunk and object to its item, in the order in which they are added later.
  void find_items(const DcpMetadata& metadata, const DcpStorage& storage) {
    const auto keep = [&](const DcpItem* item, const std::string& name, const Box* box) {
      if (!item) {
        fail(ErrorKind::corrupt, "{}: '{}'{} is listed, but its place is not", path_, name,
             box ? fmt::format(" {}", to_string(*box)) : "");
      }
      items_.push_back(item);
    };
    for (const DcpTensor& tensor : metadata.tensors) {
      for (const Box& box : tensor.chunks) {
        const DcpItem* item = storage.find(tensor.name, box.offset);
        if (!item && tensor.chunks.size() == 1) item = storage.find(tensor.name);
        keep(item, tensor.name, &box);
      }
    }
    for (const std::string& name : metadata.objects) {
      const DcpItem* item = storage.find(name);
      keep(item ? item : storage.find(name, {}), name, nullptr);
    }
  }

  // One check of each data file; all that are missing are reported together.
  void add_files() {
    std::set<std::string> missing;
    std::set<int64_t> ranks;
    for (const DcpItem* item : items_) {
      if (files_.contains(item->file)) continue;
      std::string path = join_untrusted(folder_, std::string(item->file));
      const PathStatus status = catalog_.file_system->status(path);
      if (status.kind == PathKind::missing) {
        missing.emplace(item->file);
        if (rank_of(item->file) >= 0) ranks.insert(rank_of(item->file));
      } else if (status.kind != PathKind::file) {
        fail(ErrorKind::invalid,
             "{} should be a data file of the checkpoint, but is not a regular file", path);
      }
      files_.emplace(item->file, static_cast<uint32_t>(catalog_.files.size()));
      catalog_.files.push_back({std::move(path), status.bytes});
    }
    if (missing.empty()) return;
    fail(ErrorKind::not_found,
         "{}: {} of the {} data files that its .metadata names are missing{}: {}. Each rank writes "
         "its own; copy them from the hosts that did",
         folder_, missing.size(), files_.size(),
         ranks.empty() ? "" : fmt::format(", those of rank {}", first_few(ranks, 32)),
         first_few(missing, 8));
  }

  void add_entry(const DcpTensor& tensor) {
    Entry entry{tensor.name, tensor.dtype, tensor.shape, {}, Role::model};
    entry.chunks.reserve(tensor.chunks.size());
    for (const Box& box : tensor.chunks) {
      const Extent extent = extent_of(tensor, box, *items_[next_item_++]);
      entry.chunks.push_back({{box}, {}, extent});
    }
    catalog_.entries.push_back(std::move(entry));
  }

  // A torch.save archive is always longer than its payload, so an item of exactly the payload's
  // length is part of a safetensors blob.
  Extent extent_of(const DcpTensor& tensor, const Box& box, const DcpItem& item) {
    const uint32_t file = files_.at(item.file);
    const int64_t elements = element_count(box.size, tensor.name);
    const auto bytes =
        static_cast<uint64_t>(checked_multiply(elements, size_bytes(tensor.dtype), tensor.name));
    if (item.length == bytes && !item.zstd) {
      if (bytes == 0) return {file, 0, 0, Encoding::raw, false, 0};
      const Extent extent =
          blobs_.find(catalog_, file, item.offset, tensor.name, tensor.dtype, box.size);
      spans_.push_back({file, extent.offset, extent.length, &tensor.name});
      return extent;
    }
    spans_.push_back({file, item.offset, item.length, &tensor.name});
    return {file, item.offset, item.length, Encoding::torch_zip, item.zstd, 0};
  }

  void add_object(const std::string& name) {
    const DcpItem& item = *items_[next_item_++];
    const FileInfo& file = catalog_.files[files_.at(item.file)];
    if (item.offset > file.bytes || item.length > file.bytes - item.offset) {
      fail(ErrorKind::corrupt,
           "object '{}' at bytes {}..+{} is outside {} ({} bytes); the file is truncated or "
           "belongs to another checkpoint",
           name, item.offset, item.length, file.path, file.bytes);
    }
    const uint32_t number = files_.at(item.file);
    catalog_.objects.push_back(
        {name, {number, item.offset, item.length, Encoding::raw, item.zstd, 0}, {}});
    spans_.push_back({number, item.offset, item.length, &name});
  }

  void check_disjoint_items() {
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
      return std::tie(a.file, a.offset, a.length) < std::tie(b.file, b.offset, b.length);
    });
    const Span* before = nullptr;
    for (const Span& span : spans_) {
      if (span.length == 0) continue;
      if (before && before->file == span.file && span.offset - before->offset < before->length) {
        fail(ErrorKind::corrupt,
             "{}: '{}' (bytes {}..+{}) and '{}' (bytes {}..+{}) overlap; the checkpoint's metadata "
             "is damaged",
             catalog_.files[span.file].path, *before->name, before->offset, before->length,
             *span.name, span.offset, span.length);
      }
      before = &span;
    }
  }

  std::string folder_;
  std::string path_;
  Catalog catalog_;
  SafetensorsBlobs blobs_;
  std::vector<const DcpItem*> items_;
  size_t next_item_ = 0;
  std::unordered_map<std::string_view, uint32_t> files_;
  std::vector<Span> spans_;
};

// `.metadata`, or the one `__R.metadata` of a writer that worked without collectives.
std::string metadata_path(const FileSystem& file_system, const std::string& folder) {
  const std::string usual = join(folder, ".metadata");
  if (file_system.status(usual).kind != PathKind::missing) return usual;
  std::vector<std::string> local;
  for (const std::string& name : file_system.list(folder)) {
    if (name.starts_with("__") && name.ends_with(".metadata")) local.push_back(name);
  }
  if (local.size() == 1) return join(folder, local[0]);
  if (local.size() > 1) {
    fail(ErrorKind::unsupported,
         "{}: {} ranks saved without collectives, each its own state ({}); their pieces are not "
         "described globally and cannot be joined. Save with collectives",
         folder, local.size(), first_few(local, 4));
  }
  fail(
      ErrorKind::not_found,
      "{}: no .metadata in it, which PyTorch writes last: the checkpoint is unfinished, or this is "
      "not the folder of one",
      folder);
}

}  // namespace

DcpCheckpoint open_dcp(std::shared_ptr<const FileSystem> file_system, const std::string& folder) {
  const bool plain = file_system->status(join(folder, ".metadata")).kind == PathKind::missing;
  if (plain && has_safetensors_shards(*file_system, folder)) {
    return {open_safetensors_shards(std::move(file_system), folder), nullptr};
  }
  const std::string path = metadata_path(*file_system, folder);
  const std::string bytes = read_file(*file_system, path, kMetadataLimit);
  if (bytes.empty()) {
    fail(ErrorKind::corrupt, "{} is empty; the save was interrupted or the copy failed", path);
  }
  auto document = parse_pickle(std::as_bytes(std::span(bytes)), path);
  Catalog catalog = Reader(std::move(file_system), folder, path).read(document->root());
  return {std::move(catalog), std::move(document)};
}

}  // namespace ferry
