#include <utility>

#include "ckpt/format/pickle/pickle.h"
#include "ckpt/format/pickle/pickle_writer.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/group/group.h"
#include "ckpt/group/wire.h"
#include "ckpt/memory/load.h"
#include "ckpt/open_file.h"

namespace ferry {
namespace {

// Structured bindings name all members of what is packed and unpacked: with a member more they no
// longer compile, so that none is forgotten.

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

void pack(Packer& packer, const std::optional<int64_t>& number) {
  packer.number(number.has_value());
  if (number) pack(packer, *number);
}

std::optional<int64_t> unpack_optional_number(Unpacker& unpacker) {
  if (unpacker.number() == 0) return std::nullopt;
  return unpack_number(unpacker);
}

void pack(Packer& packer, const Extent& extent) {
  const auto& [file, offset, length, encoding, zstd, payload_offset, decoded_end] = extent;
  packer.number(file).number(offset).number(length).choice(encoding);
  packer.number(zstd).number(payload_offset).number(decoded_end);
}

Extent unpack_extent(Unpacker& unpacker) {
  Extent extent;
  auto& [file, offset, length, encoding, zstd, payload_offset, decoded_end] = extent;
  file = static_cast<uint32_t>(unpacker.number());
  offset = unpacker.number();
  length = unpacker.number();
  encoding = unpacker.choice(Encoding::torch_zip);
  zstd = unpacker.number() != 0;
  payload_offset = unpacker.number();
  decoded_end = unpacker.number();
  return extent;
}

void pack(Packer& packer, const Chunk& chunk) {
  const auto& [box, rank, tensor, run_begin, run_count] = static_cast<const Shard&>(chunk);
  pack(packer, box.offset);
  pack(packer, box.size);
  pack(packer, rank);
  packer.number(tensor);
  pack(packer, run_begin);
  pack(packer, run_count);
  const auto& [strides, extent, math] = static_cast<const ChunkStorage&>(chunk);
  pack(packer, strides);
  pack(packer, extent);
  const auto& [conjugated, negated] = math;
  packer.number(conjugated).number(negated);
}

Chunk unpack_chunk(Unpacker& unpacker) {
  Chunk chunk;
  auto& [box, rank, tensor, run_begin, run_count] = static_cast<Shard&>(chunk);
  box.offset = unpack_dims(unpacker);
  box.size = unpack_dims(unpacker);
  rank = unpack_number(unpacker);
  tensor = static_cast<uint32_t>(unpacker.number());
  run_begin = unpack_number(unpacker);
  run_count = unpack_number(unpacker);
  auto& [strides, extent, math] = static_cast<ChunkStorage&>(chunk);
  strides = unpack_dims(unpacker);
  extent = unpack_extent(unpacker);
  auto& [conjugated, negated] = math;
  conjugated = unpacker.number() != 0;
  negated = unpacker.number() != 0;
  return chunk;
}

void pack(Packer& packer, const std::optional<Remainders>& remainders) {
  packer.number(remainders.has_value());
  if (!remainders) return;
  const auto& [stored, upper] = *remainders;
  packer.choice(stored).number(upper);
}

std::optional<Remainders> unpack_remainders(Unpacker& unpacker) {
  if (unpacker.number() == 0) return std::nullopt;
  Remainders remainders;
  auto& [stored, upper] = remainders;
  stored = unpacker.choice(DType::f4x2);
  upper = static_cast<uint32_t>(unpacker.number());
  return remainders;
}

void pack(Packer& packer, const Entry& entry) {
  const auto& [name, dtype, shape, chunks, role, remainders, quantised] = entry;
  if (quantised) fail(ErrorKind::internal, "tensor {}: values are not opened", name);
  packer.text(name).choice(dtype).choice(role);
  pack(packer, shape);
  pack(packer, remainders);
  packer.number(chunks.size());
  for (const Chunk& chunk : chunks) pack(packer, chunk);
}

Entry unpack_entry(Unpacker& unpacker) {
  Entry entry;
  auto& [name, dtype, shape, chunks, role, remainders, quantised] = entry;
  name = unpacker.text();
  dtype = unpacker.choice(DType::f4x2);
  role = unpacker.choice(Role::optimizer);
  shape = unpack_dims(unpacker);
  remainders = unpack_remainders(unpacker);
  chunks.resize(unpacker.count());
  for (Chunk& chunk : chunks) chunk = unpack_chunk(unpacker);
  return entry;
}

void pack(Packer& packer, const Object& object) {
  const auto& [name, extent, path] = object;
  packer.text(name);
  pack(packer, extent);
  packer.number(path.size());
  for (const std::string& step : path) packer.text(step);
}

Object unpack_object(Unpacker& unpacker) {
  Object object;
  auto& [name, extent, path] = object;
  name = unpacker.text();
  extent = unpack_extent(unpacker);
  path.resize(unpacker.count());
  for (std::string& step : path) step = unpacker.text();
  return object;
}

// Without the address that a file in memory has: it is rank 0's own.
void pack(Packer& packer, const FileInfo& file) {
  const auto& [path, bytes, memory] = file;
  packer.text(path).number(bytes);
}

FileInfo unpack_file(Unpacker& unpacker) {
  FileInfo file;
  auto& [path, bytes, memory] = file;
  path = unpacker.text();
  bytes = unpacker.number();
  return file;
}

// No structured binding can name the members of a catalog, some of which are private.
void pack(Packer& packer, const Catalog& catalog) {
  packer.number(catalog.locator != nullptr).number(catalog.files.size());
  for (const FileInfo& file : catalog.files) pack(packer, file);
  packer.number(catalog.entries.size());
  for (const Entry& entry : catalog.entries) pack(packer, entry);
  packer.number(catalog.objects.size());
  for (const Object& object : catalog.objects) pack(packer, object);
}

Catalog unpack_catalog(Unpacker& unpacker) {
  Catalog catalog;
  if (unpacker.number() != 0) catalog.locator = torch_zip_locator();
  catalog.files.resize(unpacker.count());
  for (FileInfo& file : catalog.files) file = unpack_file(unpacker);
  catalog.entries.resize(unpacker.count());
  for (Entry& entry : catalog.entries) entry = unpack_entry(unpacker);
  catalog.objects.resize(unpacker.count());
  for (Object& object : catalog.objects) object = unpack_object(unpacker);
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
  const auto& [tensor, pipeline, virtual_pipeline, expert, expert_tensor, data, context,
               world_size] = layout;
  for (const int64_t size :
       {tensor, pipeline, virtual_pipeline, expert, expert_tensor, data, context, world_size}) {
    pack(packer, size);
  }
}

ParallelLayout unpack_layout(Unpacker& unpacker) {
  ParallelLayout layout;
  auto& [tensor, pipeline, virtual_pipeline, expert, expert_tensor, data, context, world_size] =
      layout;
  for (int64_t* size : {&tensor, &pipeline, &virtual_pipeline, &expert, &expert_tensor, &data,
                        &context, &world_size}) {
    *size = unpack_number(unpacker);
  }
  return layout;
}

void pack(Packer& packer, const std::optional<ModuleChoice>& modules) {
  packer.number(modules.has_value());
  if (!modules) return;
  const auto& [norms_in_linears, split_latent_down, experts] = *modules;
  packer.number(norms_in_linears).number(split_latent_down).choice(experts);
}

std::optional<ModuleChoice> unpack_modules(Unpacker& unpacker) {
  if (unpacker.number() == 0) return std::nullopt;
  ModuleChoice modules;
  auto& [norms_in_linears, split_latent_down, experts] = modules;
  norms_in_linears = unpacker.number() != 0;
  split_latent_down = unpacker.number() != 0;
  experts = unpacker.choice(ModuleChoice::Experts::grouped_apart);
  return modules;
}

// Without damage, notes and marks, which are rank 0's.
std::string pack(const Checkpoint& checkpoint) {
  const auto& [format, path, writer, iteration, catalog, args, metadata, paths, layout, optimizer,
               optimizer_problem, param_groups, optimizer_steps, shifted_state,
               optimizer_unsupported, modules, damage, notes, conversion] = checkpoint;
  Packer packer;
  packer.choice(format).text(path).text(writer);
  pack(packer, iteration);
  pack(packer, catalog);
  pack(packer, args);
  pack(packer, metadata);
  pack(packer, paths);
  pack(packer, layout);
  packer.choice(optimizer).text(optimizer_problem);
  pack(packer, param_groups);
  pack(packer, optimizer_steps);
  packer.text(shifted_state).number(optimizer_unsupported);
  pack(packer, modules);
  packer.text(conversion);
  return packer.take();
}

Checkpoint unpack_checkpoint(const std::string& bytes) {
  Unpacker unpacker(bytes);
  Checkpoint checkpoint;
  auto& [format, path, writer, iteration, catalog, args, metadata, paths, layout, optimizer,
         optimizer_problem, param_groups, optimizer_steps, shifted_state, optimizer_unsupported,
         modules, damage, notes, conversion] = checkpoint;
  format = unpacker.choice(Format::deepspeed);
  path = unpacker.text();
  writer = unpacker.text();
  iteration = unpack_optional_number(unpacker);
  catalog = unpack_catalog(unpacker);
  args = unpack_value(unpacker);
  metadata = unpack_value(unpacker);
  paths = unpack_value(unpacker);
  layout = unpack_layout(unpacker);
  optimizer = unpacker.choice(OptimizerLayout::plain);
  optimizer_problem = unpacker.text();
  param_groups = unpack_value(unpacker);
  optimizer_steps = unpack_optional_number(unpacker);
  shifted_state = unpacker.text();
  optimizer_unsupported = unpacker.number() != 0;
  modules = unpack_modules(unpacker);
  conversion = unpacker.text();
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
    checkpoint.catalog.edit().file_system = with_archive(std::move(file_system), checkpoint.path);
    return std::move(checkpoint);
  });
}

}  // namespace ferry
