#include "ckpt/memory/saving/own_files.h"

#include <map>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/core/plan_part.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/megatron/optimizer/optimizer_entries.h"

namespace ferry {
namespace {

constexpr std::string_view kOptimizerPrefix = "optimizer.state.";

void pack_extents(Packer& packer, const Dims& dims) {
  for (const int64_t extent : dims) packer.number(static_cast<uint64_t>(extent));
}

// The rank's tensors as they are, in boxes.
PlacedState placed_as_given(const Catalog& source, std::vector<StoredObject> objects, int rank) {
  PlacedState placed;
  for (uint32_t i = 0; i < source.entries.size(); ++i) {
    const Entry& entry = source.entries[i];
    PlacedTensor& tensor = placed.tensors.emplace_back();
    tensor.tensor = {
        entry.name, entry.dtype, entry.shape, {{i}, {copy_all(entry.shape)}, {}}, entry.role};
    for (const Chunk& chunk : entry.chunks) {
      for (FilledBox& filled : filled_boxes(chunk)) {
        tensor.shards.push_back({std::move(filled.box), rank});
      }
    }
  }
  for (StoredObject& object : objects) {
    placed.objects.push_back({std::move(object.name), std::move(object.archive), rank});
  }
  return placed;
}

// The digests of a plan's items by where they begin.
using DigestsByPlace = std::map<std::pair<uint32_t, uint64_t>, Digest>;

void pack(Packer& packer, const DcpContent::Place& place, const DigestsByPlace& digests) {
  packer.number(place.file).number(place.offset).number(place.length);
  packer.digest(digests.at({place.file, place.offset}));
}

// Lower halves stand for fp32 elements, together with what the model's tensor has.
void set_remainders(Catalog& catalog,
                    const std::unordered_map<std::string_view, size_t>& positions) {
  for (Entry& entry : catalog.entries) {
    if (entry.dtype != DType::i16 || entry.role != Role::optimizer) continue;
    const auto name = parse_optimizer_entry_name(entry.name);
    const auto upper = name ? positions.find(name->key) : positions.end();
    if (upper == positions.end() || catalog.entries[upper->second].dtype != DType::bf16) {
      fail(ErrorKind::invalid, "tensor {}: lower halves, and no bf16 tensor of the upper ones",
           entry.name);
    }
    entry.remainders = Remainders{DType::i16, static_cast<uint32_t>(upper->second)};
    entry.dtype = DType::f32;
  }
}

}  // namespace

Catalog catalog_of(const std::vector<ConstRegion>& regions) {
  Catalog catalog;
  std::unordered_map<std::string_view, size_t> positions;
  bool has_halves = false;
  for (const ConstRegion& region : regions) {
    const uint64_t bytes = checked_bytes(region);
    const auto [at, is_new] = positions.try_emplace(region.name, catalog.entries.size());
    if (is_new) {
      const bool is_state = region.name.starts_with(kOptimizerPrefix);
      catalog.entries.push_back(
          {region.name, region.dtype, region.shape, {}, is_state ? Role::optimizer : Role::model});
    }
    Entry& entry = catalog.entries[at->second];
    if (entry.dtype != region.dtype || entry.shape != region.shape) {
      fail(ErrorKind::invalid, "tensor {} is given as {} {} and as {} {}", region.name,
           torch_name(entry.dtype), to_string(entry.shape), torch_name(region.dtype),
           to_string(region.shape));
    }
    const auto file = static_cast<uint32_t>(catalog.files.size());
    catalog.files.push_back({"memory for tensor " + region.name, bytes, region.data});
    entry.chunks.push_back({region.shard, {}, {file, 0, bytes}});
    has_halves = has_halves || region.half == FloatHalf::lower;
  }
  if (has_halves) set_remainders(catalog, positions);
  for (const Entry& entry : catalog.entries) {
    std::vector<const Shard*> shards;
    for (const Chunk& chunk : entry.chunks) shards.push_back(&chunk);
    if (const auto overlap = find_overlap(shards)) {
      fail(ErrorKind::invalid, "tensor {}: the regions {} and {} of one rank overlap", entry.name,
           to_string(*shards[overlap->first]), to_string(*shards[overlap->second]));
    }
  }
  return catalog;
}

OwnFiles::OwnFiles(const std::vector<ConstRegion>& regions, std::vector<StoredObject> objects,
                   const OwnFilesFormat& format, int64_t iteration, int rank)
    : source_(catalog_of(regions)), rank_(rank) {
  PlacedState given = placed_as_given(source_, std::move(objects), rank);
  placed_ = format.place({source_, std::move(given), iteration, rank});
  std::erase_if(placed_.tensors, [](const PlacedTensor& placed) { return placed.shards.empty(); });
}

std::string OwnFiles::description() const {
  Packer packer;
  packer.number(placed_.tensors.size());
  for (const PlacedTensor& placed : placed_.tensors) {
    const StateTensor& tensor = placed.tensor;
    packer.text(tensor.name).choice(tensor.dtype).number(tensor.shape.size());
    pack_extents(packer, tensor.shape);
    packer.number(placed.shards.size());
    for (const Shard& shard : placed.shards) {
      pack_extents(packer, shard.box.offset);
      pack_extents(packer, shard.box.size);
    }
  }
  packer.number(placed_.objects.size());
  for (const PlacedObject& object : placed_.objects) packer.text(object.name);
  return packer.take();
}

void OwnFiles::plan(const std::string& chosen, int files_per_rank) {
  PlacedState own;
  own.objects = std::move(placed_.objects);
  size_t next = 0;
  for (PlacedTensor& placed : placed_.tensors) {
    std::erase_if(placed.shards, [&](const Shard&) { return chosen.at(next++) != '1'; });
    if (!placed.shards.empty()) own.tensors.push_back(std::move(placed));
  }
  DcpFiles files = lay_out_dcp_files(source_, std::move(own), files_per_rank);
  content_ = std::move(files.content);
  plan_ = part_of(files.plan, rank_);
  plan_.literals = std::move(files.plan.literals);
  check_part(plan_);
}

std::string OwnFiles::write(const FileSystem& file_system, const std::string& folder,
                            const EngineOptions& engine) const {
  const std::vector<Digest> digests = run(plan_, file_system, folder, engine);
  DigestsByPlace by_place;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    by_place[{plan_.items[i].file, plan_.items[i].offset}] = digests[i];
  }
  Packer packer;
  packer.number(plan_.target.files.size());
  for (const FileInfo& file : plan_.target.files) packer.text(file.path).number(file.bytes);
  for (const DcpContent::Entry& entry : content_.entries) {
    if (entry.is_object) pack(packer, entry.place, by_place);
    for (const DcpContent::Chunk& chunk : entry.chunks) pack(packer, chunk.place, by_place);
  }
  return packer.take();
}

}  // namespace ferry
