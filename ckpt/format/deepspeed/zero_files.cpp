#include "ckpt/format/deepspeed/zero_files.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string_view>
#include <unordered_set>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/torch_file.h"

namespace ferry {
namespace {

constexpr std::string_view kModelEnd = "_model_states.pt", kOptimizerEnd = "_optim_states.pt";
constexpr std::string_view kBegins[] = {"bf16_zero_pp_rank_", "fp16_zero_pp_rank_",
                                        "zero_pp_rank_"};
constexpr std::string_view kModelRank = "mp_rank_";

struct ZeroName {
  int64_t data_rank = -1;  // -1: none in the name
  int64_t model_rank = 0;
};

bool take_number(std::string_view& text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || value >= 1 << 20) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// "[bf16_]zero_pp_rank_3_mp_rank_00" or "mp_rank_00", before one of the ends.
bool parse_stem(std::string_view stem, ZeroName& name) {
  for (const std::string_view begin : kBegins) {
    if (!stem.starts_with(begin)) continue;
    stem.remove_prefix(begin.size());
    if (!take_number(stem, name.data_rank) || !stem.starts_with("_")) return false;
    stem.remove_prefix(1);
    break;
  }
  if (!stem.starts_with(kModelRank)) return false;
  stem.remove_prefix(kModelRank.size());
  return take_number(stem, name.model_rank) && stem.empty();
}

bool has_end(const std::string& name, std::string_view end) { return name.ends_with(end); }

std::vector<std::string> by_rank(const std::map<int64_t, std::string>& files,
                                 const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& [rank, name] : files) {
    if (rank != static_cast<int64_t>(names.size())) {
      fail(ErrorKind::not_found, "{}: the file of rank {} is missing, that of rank {} is {}",
           folder, names.size(), rank, name);
    }
    names.push_back(name);
  }
  return names;
}

[[noreturn]] void refuse(const std::string& folder, const std::string& name) {
  fail(ErrorKind::unsupported,
       "{}: {} is of a model that tensor, pipeline or expert parallelism split, which cannot be "
       "read; DeepSpeed's ds_to_universal makes a universal checkpoint of it, which can",
       folder, name);
}

}  // namespace

bool is_zero_file(const std::string& name) {
  ZeroName ranks;
  for (const std::string_view end : {kModelEnd, kOptimizerEnd}) {
    if (!has_end(name, end)) continue;
    const std::string_view stem = std::string_view(name).substr(0, name.size() - end.size());
    return parse_stem(stem, ranks) || stem.starts_with("layer_") || stem.starts_with("expp_rank_");
  }
  return false;
}

ZeroFiles find_zero_files(const std::vector<std::string>& names, const std::string& folder) {
  std::map<int64_t, std::string> model, parts, optimizer;
  for (const std::string& name : names) {
    const bool of_model = has_end(name, kModelEnd), of_optimizer = has_end(name, kOptimizerEnd);
    if (!of_model && !of_optimizer) continue;
    const size_t end = (of_model ? kModelEnd : kOptimizerEnd).size();
    ZeroName ranks;
    if (!parse_stem(std::string_view(name).substr(0, name.size() - end), ranks) ||
        ranks.model_rank != 0) {
      refuse(folder, name);
    }
    auto& files = of_optimizer ? optimizer : ranks.data_rank < 0 ? model : parts;
    if (files.emplace(std::max<int64_t>(ranks.data_rank, 0), name).second) continue;
    fail(ErrorKind::invalid, "{}: {} and {} are of the same rank; move those of one save away",
         folder, files.at(std::max<int64_t>(ranks.data_rank, 0)), name);
  }
  ZeroFiles files;
  files.folder = folder;
  files.is_partitioned = model.empty() && !parts.empty();
  files.model = by_rank(files.is_partitioned ? parts : model, folder);
  files.optimizer = by_rank(optimizer, folder);
  if (files.model.empty()) {
    fail(ErrorKind::not_found,
         "{}: no *_model_states.pt, which says what the parameters are called; complete the copy",
         folder);
  }
  return files;
}

namespace {

Dims shape_of(const Value& value, const std::string& what) {
  Dims shape;
  const bool is_sequence = value.kind() == ValueKind::tuple || value.kind() == ValueKind::list;
  for (size_t i = 0; is_sequence && i < value.size(); ++i) {
    const auto size = value[i].integer();
    if (!size || *size < 0) fail(ErrorKind::corrupt, "{}: a shape is malformed", what);
    shape.push_back(*size);
  }
  if (!is_sequence || shape.size() > 64) fail(ErrorKind::corrupt, "{}: a shape is malformed", what);
  element_count(shape, what);
  return shape;
}

ZeroGroup read_group(const Value& shapes, const std::string& what) {
  if (shapes.kind() != ValueKind::dict) {
    fail(ErrorKind::corrupt, "{}: its param_shapes is not a dict of names and shapes", what);
  }
  ZeroGroup group;
  for (size_t i = 0; i < shapes.pair_count(); ++i) {
    const std::string name = key_text(shapes.pair_key(i));
    group.push_back({name, shape_of(shapes.pair_value(i), what + ", parameter " + name), 0});
  }
  return group;
}

Entry stored_entry(const TorchArchive& archive, uint32_t file, const std::string& name,
                   const StoredTensor& tensor, const std::string& what) {
  Entry entry{name, tensor.dtype, tensor.shape, {}, Role::model};
  entry.chunks.push_back(stored_chunk(archive, tensor, file, what + ", tensor " + name));
  return entry;
}

// Stage 3 leaves empty tensors in place of what it partitioned.
bool is_placeholder(const StoredTensor& tensor) {
  return tensor.shape == Dims{0} || tensor.storage_elements == 0;
}

}  // namespace

ZeroModel read_zero_model(const TorchArchive& archive, uint32_t file, const std::string& what) {
  const Value root = archive.pickle->root();
  ZeroModel model;
  const Value shapes = root.get("param_shapes");
  if (shapes.kind() == ValueKind::list) {
    for (size_t i = 0; i < shapes.size(); ++i) model.groups.push_back(read_group(shapes[i], what));
  } else if (shapes) {
    model.groups.push_back(read_group(shapes, what));
  }
  std::unordered_set<std::string> buffers;
  const Value names = root.get("buffer_names");
  for (size_t i = 0; i < names.size(); ++i) buffers.insert(key_text(names[i]));
  const Value module = root.get("module");
  for (size_t i = 0; i < module.pair_count(); ++i) {
    const StoredTensor* tensor = module.pair_value(i).tensor();
    if (tensor == nullptr || is_placeholder(*tensor)) continue;
    const std::string name = key_text(module.pair_key(i));
    auto& entries = buffers.contains(name) ? model.buffers : model.weights;
    entries.push_back(stored_entry(archive, file, name, *tensor, what));
  }
  const Value shared = root.get("shared_params");
  for (size_t i = 0; i < shared.pair_count(); ++i) {
    model.shared.emplace_back(key_text(shared.pair_key(i)), key_text(shared.pair_value(i)));
  }
  const Value frozen = root.get("frozen_param_shapes");
  for (size_t i = 0; i < frozen.pair_count(); ++i) {
    const std::string name = key_text(frozen.pair_key(i));
    model.frozen.emplace_back(name, shape_of(frozen.pair_value(i), what + ", parameter " + name));
  }
  if (const auto version = root.get("ds_version").string()) model.version = *version;
  model.steps = root.get("global_steps").integer();
  model.is_universal = static_cast<bool>(root.get("universal_checkpoint_info"));
  return model;
}

std::vector<Entry> frozen_parameters(const ZeroModel& model, const std::vector<TorchArchive>& ranks,
                                     const std::vector<uint32_t>& files, const std::string& what) {
  std::vector<Entry> entries;
  for (const auto& [name, shape] : model.frozen) {
    Entry entry{name, DType::f32, shape, {}, Role::model};
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const Value fragments = ranks[rank].pickle->root().get("frozen_param_fragments");
      const StoredTensor* tensor = fragments.get(name).tensor();
      if (tensor == nullptr) {
        fail(ErrorKind::corrupt, "{}: rank {} holds no part of the frozen parameter {}", what, rank,
             name);
      }
      if (rank == 0) entry.dtype = tensor->dtype;
      const std::string part = fmt::format("{}, frozen parameter {} of rank {}", what, name, rank);
      Chunk chunk = stored_chunk(ranks[rank], *tensor, files[rank], part);
      if (ranks.size() == 1 && tensor->shape == shape) {
        entry.chunks.push_back(std::move(chunk));
        break;
      }
      const FlatTensor flat = flat_tensor(ranks[rank], files[rank], fragments.get(name), part);
      Shard shard = rank_part(shape, entry.elements(), static_cast<int64_t>(ranks.size()),
                              static_cast<int64_t>(rank));
      if (flat.elements < shard.run_count || flat.dtype != entry.dtype) {
        fail(ErrorKind::corrupt, "{}: has {} elements of {}, its part has {} of {}", part,
             flat.elements, torch_name(flat.dtype), shard.run_count, torch_name(entry.dtype));
      }
      if (shard.run_count == 0) continue;
      Extent extent = flat.extent;
      extent.length =
          static_cast<uint64_t>(shard.run_count) * static_cast<uint64_t>(size_bytes(flat.dtype));
      entry.chunks.push_back({std::move(shard), {}, extent});
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace ferry
