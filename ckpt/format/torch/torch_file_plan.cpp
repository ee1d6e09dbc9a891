#include "ckpt/format/torch/torch_file_plan.h"

#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/archive/torch_archive_writer.h"

namespace ferry {
namespace {

// "mp_rank_00/model_optim_rng.pt" -> "model_optim_rng": what torch.save names its records by.
std::string archive_folder(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 is 0
  return std::string(path.substr(0, path.rfind('.')));
}

}  // namespace

Value TorchFilePlan::tensor(StateTensor elements, const Dims& shape, std::vector<Shard> parts) {
  const int64_t count = element_count(shape, elements.name);
  if (elements.shape != Dims{count}) {
    fail(ErrorKind::internal, "tensor {}: {} elements for the shape {}", elements.name,
         to_string(elements.shape), to_string(shape));
  }
  const DType dtype = elements.dtype;
  const auto bytes = static_cast<uint64_t>(count) * static_cast<uint64_t>(size_bytes(dtype));
  const std::string storage = draft_.storage_of(bytes);
  if (parts.empty()) parts.push_back({Box::whole(elements.shape), rank_});
  if (count > 0) by_storage_.emplace(storage, Elements{std::move(elements), std::move(parts)});
  return draft_.tensor_of(storage, dtype, shape);
}

void TorchFilePlan::add_to(Plan& plan, const std::string& path, const Value& root) && {
  const LoadedValue value = std::move(draft_).finish(root);
  TorchArchiveLayout layout = lay_out_torch_archive(value.value, archive_folder(path));
  const uint32_t file = plan.target.add_file(path, layout.length);
  for (TorchArchiveLayout::Literal& literal : layout.literals) {
    plan.literals.push_back({file, literal.offset, std::move(literal.bytes)});
  }
  Item item{file, 0, layout.length, {}, rank_};
  for (const TorchArchiveLayout::Payload& payload : layout.payloads) {
    const auto at = by_storage_.find(payload.storage);
    if (at == by_storage_.end()) {
      fail(ErrorKind::internal, "{}: the elements of storage {} are unknown", path,
           payload.storage);
    }
    StateTensor& tensor = at->second.tensor;
    Entry entry{path + ":" + tensor.name, tensor.dtype, tensor.shape, {}, tensor.role};
    const auto element_bytes = static_cast<uint64_t>(size_bytes(tensor.dtype));
    uint64_t offset = payload.offset;
    for (Shard& part : at->second.parts) {
      const auto elements = static_cast<uint64_t>(part.elements(entry.name));
      Extent extent;
      extent.file = file;
      extent.offset = offset;
      extent.length = elements * element_bytes;
      offset += extent.length;
      entry.chunks.push_back({std::move(part), {}, extent});
    }
    plan.target.entries.push_back(std::move(entry));
    plan.recipes.push_back(std::move(tensor.recipe));
    const auto& offsets = payload.crc32_offsets;
    item.payloads.push_back({payload.offset, payload.length, {offsets.begin(), offsets.end()}});
  }
  plan.items.push_back(std::move(item));
}

}  // namespace ferry
