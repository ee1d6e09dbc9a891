#include "ckpt/memory/open_together.h"

#include <utility>

#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/pickle/pickle_writer.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/group/together.h"
#include "ckpt/group/wire.h"

namespace ferry {
namespace {

void pack(Packer& packer, int64_t number) { packer.number(static_cast<uint64_t>(number)); }
int64_t unpack_number(Unpacker& unpacker) { return static_cast<int64_t>(unpacker.number()); }

void pack(Packer& packer, const Dims& dims) {
  packer.number(dims.size());
  for (const int64_t extent : dims) pack(packer, extent);
}

Dims unpack_dims(Unpacker& unpacker) {
  Dims dims(unpacker.count());
  for (int64_t& extent : dims) extent = unpack_number(unpacker);
  return dims;
}

void pack(Packer& packer, const Extent& extent) {
  packer.number(extent.file).number(extent.offset).number(extent.length).choice(extent.encoding);
  packer.number(extent.zstd).number(extent.payload_offset).number(extent.decoded_end);
}

Extent unpack_extent(Unpacker& unpacker) {
  Extent extent;
  extent.file = static_cast<uint32_t>(unpacker.number());
  extent.offset = unpacker.number();
  extent.length = unpacker.number();
  extent.encoding = unpacker.choice(Encoding::torch_zip);
  extent.zstd = unpacker.number() != 0;
  extent.payload_offset = unpacker.number();
  extent.decoded_end = unpacker.number();
  return extent;
}

void pack(Packer& packer, const Chunk& chunk) {
  pack(packer, chunk.box.offset);
  pack(packer, chunk.box.size);
  pack(packer, chunk.rank);
  packer.number(chunk.tensor);
  pack(packer, chunk.run_begin);
  pack(packer, chunk.run_count);
  pack(packer, chunk.strides);
  pack(packer, chunk.extent);
}

Chunk unpack_chunk(Unpacker& unpacker) {
  Chunk chunk;
  chunk.box.offset = unpack_dims(unpacker);
  chunk.box.size = unpack_dims(unpacker);
  chunk.rank = unpack_number(unpacker);
  chunk.tensor = static_cast<uint32_t>(unpacker.number());
  chunk.run_begin = unpack_number(unpacker);
  chunk.run_count = unpack_number(unpacker);
  chunk.strides = unpack_dims(unpacker);
  chunk.extent = unpack_extent(unpacker);
  return chunk;
}

void pack(Packer& packer, const Catalog& catalog) {
  packer.number(catalog.locator != nullptr).number(catalog.files.size());
  for (const FileInfo& file : catalog.files) packer.text(file.path).number(file.bytes);
  packer.number(catalog.entries.size());
  for (const Entry& entry : catalog.entries) {
    packer.text(entry.name).choice(entry.dtype).choice(entry.role);
    pack(packer, entry.shape);
    packer.number(entry.remainders.has_value());
    if (entry.remainders) packer.choice(entry.remainders->stored).number(entry.remainders->upper);
    packer.number(entry.chunks.size());
    for (const Chunk& chunk : entry.chunks) pack(packer, chunk);
  }
  packer.number(catalog.objects.size());
  for (const Object& object : catalog.objects) {
    packer.text(object.name);
    pack(packer, object.extent);
    packer.number(object.path.size());
    for (const std::string& step : object.path) packer.text(step);
  }
}

Catalog unpack_catalog(Unpacker& unpacker) {
  Catalog catalog;
  if (unpacker.number() != 0) catalog.locator = torch_zip_locator();
  catalog.files.resize(unpacker.count());
  for (FileInfo& file : catalog.files) {
    file.path = unpacker.text();
    file.bytes = unpacker.number();
  }
  catalog.entries.resize(unpacker.count());
  for (Entry& entry : catalog.entries) {
    entry.name = unpacker.text();
    entry.dtype = unpacker.choice(DType::f4x2);
    entry.role = unpacker.choice(Role::optimizer);
    entry.shape = unpack_dims(unpacker);
    if (unpacker.number() != 0) {
      const DType stored = unpacker.choice(DType::f4x2);
      entry.remainders = {stored, static_cast<uint32_t>(unpacker.number())};
    }
    entry.chunks.resize(unpacker.count());
    for (Chunk& chunk : entry.chunks) chunk = unpack_chunk(unpacker);
  }
  catalog.objects.resize(unpacker.count());
  for (Object& object : catalog.objects) {
    object.name = unpacker.text();
    object.extent = unpack_extent(unpacker);
    object.path.resize(unpacker.count());
    for (std::string& step : object.path) step = unpacker.text();
  }
  return catalog;
}

void pack(Packer& packer, const LoadedValue& value) {
  packer.text(value.value ? write_pickle(value.value) : std::string());
}

LoadedValue unpack_value(Unpacker& unpacker) {
  const std::string pickle = unpacker.text();
  if (pickle.empty()) return {};
  const auto document = parse_pickle(std::as_bytes(std::span(pickle)), "rank 0's message");
  return {document, document->root()};
}

void pack(Packer& packer, const ParallelLayout& layout) {
  for (const int64_t size :
       {layout.tensor, layout.pipeline, layout.virtual_pipeline, layout.expert,
        layout.expert_tensor, layout.data, layout.context, layout.world_size}) {
    pack(packer, size);
  }
}

ParallelLayout unpack_layout(Unpacker& unpacker) {
  ParallelLayout layout;
  for (int64_t* size : {&layout.tensor, &layout.pipeline, &layout.virtual_pipeline, &layout.expert,
                        &layout.expert_tensor, &layout.data, &layout.context, &layout.world_size}) {
    *size = unpack_number(unpacker);
  }
  return layout;
}

void pack(Packer& packer, const std::optional<ModuleChoice>& modules) {
  packer.number(modules.has_value());
  if (!modules) return;
  packer.number(modules->norms_in_linears).number(modules->split_latent_down);
  packer.choice(modules->experts);
}

std::optional<ModuleChoice> unpack_modules(Unpacker& unpacker) {
  if (unpacker.number() == 0) return std::nullopt;
  const bool norms = unpacker.number() != 0, latent = unpacker.number() != 0;
  return ModuleChoice{norms, latent, unpacker.choice(ModuleChoice::Experts::grouped_apart)};
}

std::string pack(const Checkpoint& checkpoint) {
  Packer packer;
  packer.choice(checkpoint.format).text(checkpoint.path).text(checkpoint.writer);
  packer.number(checkpoint.iteration.has_value());
  pack(packer, checkpoint.iteration.value_or(0));
  pack(packer, checkpoint.catalog);
  pack(packer, checkpoint.args);
  pack(packer, checkpoint.metadata);
  pack(packer, checkpoint.paths);
  pack(packer, checkpoint.layout);
  packer.choice(checkpoint.optimizer).text(checkpoint.optimizer_problem);
  packer.text(checkpoint.shifted_state);
  pack(packer, checkpoint.modules);
  return packer.take();
}

Checkpoint unpack_checkpoint(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Checkpoint checkpoint;
  checkpoint.format = unpacker.choice(Format::deepspeed);
  checkpoint.path = unpacker.text();
  checkpoint.writer = unpacker.text();
  const bool has_iteration = unpacker.number() != 0;
  const int64_t iteration = unpack_number(unpacker);
  if (has_iteration) checkpoint.iteration = iteration;
  checkpoint.catalog = unpack_catalog(unpacker);
  checkpoint.args = unpack_value(unpacker);
  checkpoint.metadata = unpack_value(unpacker);
  checkpoint.paths = unpack_value(unpacker);
  checkpoint.layout = unpack_layout(unpacker);
  checkpoint.optimizer = unpacker.choice(OptimizerLayout::plain);
  checkpoint.optimizer_problem = unpacker.text();
  checkpoint.shifted_state = unpacker.text();
  checkpoint.modules = unpack_modules(unpacker);
  unpacker.finish();
  return checkpoint;
}

}  // namespace

Checkpoint open_together(std::shared_ptr<const FileSystem> file_system, const std::string& path,
                         Group& group, const OpenOptions& options) {
  Checkpoint checkpoint;
  const std::string packed = from_first_together(group, [&] {
    checkpoint = open_checkpoint(file_system, path, options);
    return group.size() > 1 ? pack(checkpoint) : std::string();
  });
  if (group.rank() == 0) return checkpoint;
  return or_abort(group, [&] {
    checkpoint = unpack_checkpoint(packed);
    checkpoint.catalog.file_system = std::move(file_system);
    return std::move(checkpoint);
  });
}

}  // namespace ferry
