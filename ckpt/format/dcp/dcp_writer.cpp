#include "ckpt/format/dcp/dcp_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"
#include "ckpt/format/dcp/dcp_metadata_writer.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"

namespace ferry {
namespace {

// An object, or a piece of a tensor.
struct Work {
  int64_t rank = 0;
  bool is_object = false;
  uint32_t owner = 0;  // position among the objects, or the tensors
  uint32_t piece = 0;
  uint64_t bytes = 0;  // of the whole item
};

// The metadata of items that became zstd streams: the same in other places.
std::string compressed_metadata(DcpContent content, const Catalog& target) {
  const auto place = [](const Extent& extent) {
    return DcpContent::Place{extent.file, extent.offset, extent.length, true};
  };
  const size_t tensors = target.entries.size();
  for (size_t i = 0; i < tensors; ++i) {
    std::vector<DcpContent::Chunk>& chunks = content.entries[i].chunks;
    for (size_t j = 0; j < chunks.size(); ++j) {
      chunks[j].place = place(target.entries[i].chunks[j].extent);
    }
  }
  std::unordered_map<std::string_view, const Object*> objects;
  for (const Object& object : target.objects) objects.emplace(object.name, &object);
  for (size_t i = tensors; i < content.entries.size(); ++i) {
    content.entries[i].place = place(objects.at(content.entries[i].name)->extent);
  }
  return write_dcp_metadata(content);
}

class Layout {
 public:
  Layout(SharedCatalog source, PlacedState state, int files_per_rank)
      : tensors_(std::move(state.tensors)),
        objects_(std::move(state.objects)),
        files_per_rank_(files_per_rank) {
    plan_.source = std::move(source);
  }

  DcpFiles build() {
    check_names();
    add_entries();
    for (const auto& [file, works] : works_by_file()) place_file(file, works);
    return {std::move(plan_), std::move(content_)};
  }

 private:
  using FileKey = std::pair<int64_t, int>;  // rank, number

  void check_names() const {
    std::unordered_set<std::string_view> names;
    const auto take = [&](const std::string& name) {
      if (utf8_prefix(name, false) != name.size()) {
        fail(ErrorKind::invalid, "the name {} is not UTF-8: it could not be read again",
             to_utf8(name));
      }
      if (!names.insert(name).second) {
        fail(ErrorKind::invalid, "two entries of the target would be called {}", name);
      }
    };
    for (const PlacedTensor& placed : tensors_) take(placed.tensor.name);
    for (const PlacedObject& object : objects_) take(object.name);
    if (files_per_rank_ < 1) {
      fail(ErrorKind::invalid, "{} files a rank", files_per_rank_);
    }
  }

  // Everything but the places.
  void add_entries() {
    for (PlacedTensor& placed : tensors_) {
      StateTensor& tensor = placed.tensor;
      Entry entry{tensor.name, tensor.dtype, tensor.shape, {}, tensor.role};
      DcpContent::Entry content{tensor.name, false, tensor.dtype, tensor.shape, {}, {}};
      entry.chunks.reserve(placed.shards.size());
      content.chunks.reserve(placed.shards.size());
      for (Shard& shard : placed.shards) {
        if (shard.is_run() || !is_inside(shard.box, tensor.shape)) {
          fail(ErrorKind::mismatch, "shard {} of tensor {} is not a box inside its shape {}",
               to_string(shard), tensor.name, to_string(tensor.shape));
        }
        content.chunks.push_back({shard.box, {}});
        entry.chunks.push_back({std::move(shard), {}, {}});
      }
      plan_.target.entries.push_back(std::move(entry));
      plan_.recipes.push_back(std::move(tensor.recipe));
      content_.entries.push_back(std::move(content));
    }
    for (const PlacedObject& object : objects_) {
      content_.entries.push_back({object.name, true, DType::f32, {}, {}, {}});
    }
  }

  // Every rank's works, shared out over its files: the largest first, each into the file that has
  // least. Inside a file they keep their order, objects first.
  std::map<FileKey, std::vector<Work>> works_by_file() {
    std::map<int64_t, std::vector<Work>> by_rank;
    for (uint32_t i = 0; i < objects_.size(); ++i) {
      by_rank[objects_[i].rank].push_back(
          {objects_[i].rank, true, i, 0, objects_[i].archive.size()});
    }
    for (uint32_t i = 0; i < tensors_.size(); ++i) {
      for (uint32_t j = 0; j < tensors_[i].shards.size(); ++j) {
        const int64_t rank = tensors_[i].shards[j].rank;
        by_rank[rank].push_back({rank, false, i, j, archive_of(i, j).length});
      }
    }
    std::map<FileKey, std::vector<Work>> files;
    for (auto& [rank, works] : by_rank) share_out(rank, works, files);
    return files;
  }

  void share_out(int64_t rank, const std::vector<Work>& works,
                 std::map<FileKey, std::vector<Work>>& files) const {
    std::vector<uint32_t> order(works.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return works[a].bytes > works[b].bytes; });
    std::vector<uint64_t> filled(files_per_rank_);
    std::vector<int> file_of(works.size());
    for (uint32_t i : order) {
      const auto least = std::min_element(filled.begin(), filled.end());
      file_of[i] = static_cast<int>(least - filled.begin());
      *least += works[i].bytes;
    }
    for (size_t i = 0; i < works.size(); ++i) files[{rank, file_of[i]}].push_back(works[i]);
  }

  // Pieces of one shape have one layout.
  const TorchArchiveLayout& archive_of(uint32_t tensor, uint32_t piece) {
    const Entry& entry = plan_.target.entries[tensor];
    const Dims& shape = entry.chunks[piece].box.size;
    const auto [at, added] = archives_.try_emplace({entry.dtype, shape});
    if (added) at->second = lay_out_torch_tensor(entry.dtype, shape);
    return at->second;
  }

  void place_file(const FileKey& key, const std::vector<Work>& works) {
    file_ = static_cast<uint32_t>(content_.files.size());
    rank_ = key.first;
    content_.files.push_back(fmt::format("__{}_{}.distcp", key.first, key.second));
    uint64_t offset = 0;
    for (const Work& work : works) {
      work.is_object ? place_object(work, offset) : place_piece(work, offset);
      offset = checked_add(offset, work.bytes, content_.files.back());
    }
    plan_.target.files.push_back({content_.files.back(), offset});
  }

  void place_object(const Work& work, uint64_t offset) {
    content_.entries[tensors_.size() + work.owner].place = {file_, offset, work.bytes, false};
    const Extent extent{file_, offset, work.bytes, Encoding::raw, false, 0};
    plan_.target.objects.push_back({objects_[work.owner].name, extent, {}});
    plan_.literals.push_back({file_, offset, std::move(objects_[work.owner].archive)});
    plan_.items.push_back({file_, offset, work.bytes, {}, rank_});
  }

  void place_piece(const Work& work, uint64_t offset) {
    const TorchArchiveLayout& archive = archive_of(work.owner, work.piece);
    for (const TorchArchiveLayout::Literal& literal : archive.literals) {
      plan_.literals.push_back({file_, offset + literal.offset, literal.bytes});
    }
    Item item{file_, offset, work.bytes, {}, rank_};
    Extent extent{file_, offset, 0, Encoding::raw, false, 0};
    if (!archive.payloads.empty()) {
      const TorchArchiveLayout::Payload& payload = archive.payloads.front();
      extent.offset = offset + payload.offset;
      extent.length = payload.length;
      item.payloads.push_back({extent.offset, extent.length, {}});
      for (uint64_t at : payload.crc32_offsets) {
        item.payloads.front().crc32_offsets.push_back(offset + at);
      }
    }
    plan_.items.push_back(std::move(item));
    plan_.target.entries[work.owner].chunks[work.piece].extent = extent;
    content_.entries[work.owner].chunks[work.piece].place = {file_, offset, work.bytes, false};
  }

  std::vector<PlacedTensor> tensors_;
  std::vector<PlacedObject> objects_;
  int files_per_rank_;
  std::map<std::pair<DType, Dims>, TorchArchiveLayout> archives_;
  Plan plan_;
  DcpContent content_;
  uint32_t file_ = 0;  // that is being filled
  int64_t rank_ = 0;   // whose it is
};

}  // namespace

DcpFiles lay_out_dcp_files(SharedCatalog source, PlacedState state, int files_per_rank) {
  return Layout(std::move(source), std::move(state), files_per_rank).build();
}

PlannedOutput lay_out_dcp(SharedCatalog source, PlacedState state, const DcpWriteOptions& options) {
  DcpFiles files = lay_out_dcp_files(std::move(source), std::move(state), options.files_per_rank);
  files.content.planner_data = options.planner_data;
  std::string metadata = write_dcp_metadata_with_id(files.content);
  PlannedOutput output;
  output.plan = std::move(files.plan);
  if (options.zstd) {
    output.late_file = {".metadata", [content = std::move(files.content)](const Catalog& target) {
                          return compressed_metadata(content, target);
                        }};
  } else {
    output.small_files.emplace_back(".metadata", std::move(metadata));
  }
  return output;
}

LoadedValue dcp_paths(const std::vector<std::string>& keys, const Value& known) {
  Draft draft;
  const Value paths = draft.dict();
  for (const std::string& name : keys) {
    const Value key = draft.string(name);
    const Value path = known.get(name);
    draft.add(paths, key, path ? draft.copy(path) : draft.tuple({key}));
  }
  return std::move(draft).finish(paths);
}

}  // namespace ferry
