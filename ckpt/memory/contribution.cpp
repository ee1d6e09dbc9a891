#include "ckpt/memory/contribution.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/group/wire.h"

namespace ferry {
namespace {

constexpr std::string_view kOptimizerPrefix = "optimizer.state.";

void pack_dims(Packer& packer, const Dims& dims) {
  packer.number(dims.size());
  for (const int64_t extent : dims) packer.number(static_cast<uint64_t>(extent));
}

Dims unpack_dims(Unpacker& unpacker) {
  Dims dims(unpacker.count());
  for (int64_t& extent : dims) extent = static_cast<int64_t>(unpacker.number());
  return dims;
}

std::vector<int64_t> key_of(const Box& box) {
  std::vector<int64_t> key = box.offset;
  key.insert(key.end(), box.size.begin(), box.size.end());
  return key;
}

}  // namespace

std::string pack(const Contribution& contribution) {
  Packer packer;
  packer.number(contribution.ended).number(contribution.stopped);
  packer.number(static_cast<uint64_t>(contribution.iteration));
  packer.text(contribution.problem).number(static_cast<uint64_t>(contribution.problem_kind));
  packer.number(contribution.tensors.size());
  for (const ConstRegion& region : contribution.tensors) {
    packer.text(region.name).number(static_cast<uint64_t>(region.dtype));
    pack_dims(packer, region.shape);
    pack_dims(packer, region.box.offset);
    pack_dims(packer, region.box.size);
  }
  packer.number(contribution.objects.size());
  for (const StoredObject& object : contribution.objects) {
    packer.text(object.name).text(object.archive);
  }
  return packer.take();
}

Contribution unpack_contribution(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Contribution contribution;
  contribution.ended = unpacker.number() != 0;
  contribution.stopped = unpacker.number() != 0;
  contribution.iteration = static_cast<int64_t>(unpacker.number());
  contribution.problem = unpacker.text();
  contribution.problem_kind = static_cast<ErrorKind>(unpacker.number());
  contribution.tensors.resize(unpacker.count());
  for (ConstRegion& region : contribution.tensors) {
    region.name = unpacker.text();
    region.dtype = static_cast<DType>(unpacker.number());
    region.shape = unpack_dims(unpacker);
    region.box.offset = unpack_dims(unpacker);
    region.box.size = unpack_dims(unpacker);
  }
  contribution.objects.resize(unpacker.count());
  for (StoredObject& object : contribution.objects) {
    object.name = unpacker.text();
    object.archive = unpacker.text();
  }
  return contribution;
}

GatheredMemory::GatheredMemory(std::span<const Contribution> ranks)
    : iteration_(ranks[0].iteration) {
  std::vector<uint64_t> loads(ranks.size());  // bytes that each rank writes
  for (const Tensor& tensor : collect(ranks)) place(tensor, loads);
  try {
    for (const Entry& entry : source_.entries) check_chunks(source_, entry);
  } catch (const Error& error) {
    fail(ErrorKind::invalid, "the regions of all ranks do not make whole tensors: {}",
         error.what());
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const StoredObject& object : ranks[rank].objects) {
      objects_.push_back({object.name, object.archive, static_cast<int64_t>(rank)});
    }
  }
}

// The tensors in the order in which they are first named.
std::vector<GatheredMemory::Tensor> GatheredMemory::collect(
    std::span<const Contribution> ranks) const {
  std::vector<Tensor> tensors;
  std::unordered_map<std::string_view, size_t> positions;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const ConstRegion& region : ranks[rank].tensors) {
      const auto [at, is_new] = positions.try_emplace(region.name, tensors.size());
      if (is_new) tensors.push_back({&region, {}});
      Tensor& tensor = tensors[at->second];
      if (region.shape != tensor.first->shape || region.dtype != tensor.first->dtype) {
        fail(ErrorKind::invalid, "tensor {} is given as {} {} and, by rank {}, as {} {}",
             region.name, torch_name(tensor.first->dtype), to_string(tensor.first->shape), rank,
             torch_name(region.dtype), to_string(region.shape));
      }
      std::vector<Holder>& holders = tensor.pieces[key_of(region.box)];
      if (!holders.empty() && holders.back().rank == rank) {
        fail(ErrorKind::invalid, "tensor {}: rank {} gives {} twice", region.name, rank,
             to_string(region.box));
      }
      holders.push_back({rank, &region});
    }
  }
  return tensors;
}

void GatheredMemory::place(const Tensor& tensor, std::vector<uint64_t>& loads) {
  const ConstRegion& first = *tensor.first;
  const bool is_state = first.name.starts_with(kOptimizerPrefix);
  const auto position = static_cast<uint32_t>(source_.entries.size());
  Entry entry{first.name, first.dtype, first.shape, {}, is_state ? Role::optimizer : Role::model};
  PlacedTensor placed;
  const bool is_empty = entry.elements() == 0;
  for (const auto& [key, holders] : tensor.pieces) {
    // Of a tensor without elements one piece tells; others have no use for pieces without any.
    const bool has_elements = element_count(holders[0].region->box.size, entry.name) > 0;
    if (is_empty ? !entry.chunks.empty() : !has_elements) continue;
    const Holder& writer = *std::min_element(
        holders.begin(), holders.end(),
        [&](const Holder& a, const Holder& b) { return loads[a.rank] < loads[b.rank]; });
    const ConstRegion& region = *writer.region;
    const auto bytes = static_cast<uint64_t>(element_count(region.box.size, region.name) *
                                             size_bytes(region.dtype));
    loads[writer.rank] += bytes;
    const auto file = static_cast<uint32_t>(source_.files.size());
    source_.files.push_back(
        {fmt::format("memory of rank {} for tensor {}", writer.rank, region.name), bytes,
         region.data});
    entry.chunks.push_back({region.box, 0, -1, {}, {file, 0, bytes}});
    placed.pieces.push_back({region.box, static_cast<int64_t>(writer.rank)});
  }
  placed.tensor = {
      entry.name, entry.dtype, entry.shape, {{position}, {copy_all(entry.shape)}, {}}, entry.role};
  source_.entries.push_back(std::move(entry));
  tensors_.push_back(std::move(placed));
}

GatheredState GatheredMemory::state() const {
  GatheredState state;
  state.source = &source_;
  state.tensors = tensors_;
  state.objects = objects_;
  state.iteration = iteration_;
  return state;
}

}  // namespace ferry
