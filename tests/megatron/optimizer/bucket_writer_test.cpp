// Flat buckets as Megatron-LM's own checkpoints have them, made anew from their decoded state.
#include "ckpt/megatron/optimizer/buckets/bucket_writer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <tuple>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/megatron/optimizer/bucket_optimizer.h"
#include "tests/megatron/writer_support.h"
#include "tests/support.h"

namespace ferry {
namespace {

using test::fixture;
using testing::HasSubstr;

Checkpoint open(const std::string& name, bool raw) {
  OpenOptions options;
  options.raw = raw;
  return open_checkpoint(posix_file_system(), fixture("megatron/" + name), options);
}

// The pickle of a torch.save archive.
std::string pickle_of(const ReadableFile& file, uint64_t offset, uint64_t length) {
  const TorchArchive::Record record =
      read_torch_archive(file, offset, length).records.at("data.pkl");
  std::string bytes(record.length, '\0');
  file.read(record.offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string pickle_of(const std::string& archive) {
  MemoryFileSystem files;
  files.put("archive", archive);
  return pickle_of(*files.open("archive"), 0, archive.size());
}

std::string stored_pickle(const Catalog& catalog, const Object& object) {
  const auto file = catalog.file_system->open(catalog.files[object.extent.file].path);
  return pickle_of(*file, object.extent.offset, object.extent.length);
}

// The optimizers' parameter groups, as any of the stored objects has them.
std::vector<LoadedValue> stored_groups(const Catalog& raw) {
  std::vector<LoadedValue> groups;
  for (const char* prefix : {"", "chained_0.", "chained_1."}) {
    const Object* object = raw.find_object(
        prefix + std::string("optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1"));
    if (!object) continue;
    LoadedValue value = read_object(raw, *object);
    value.value = value.value[0].get("param_groups");
    groups.push_back(std::move(value));
  }
  return groups;
}

// Global rank of "__3_0.distcp".
int64_t rank_of_file(const std::string& path) {
  return std::stoll(path.substr(path.rfind("__") + 2));
}

using Cut = std::tuple<int64_t, int64_t, int64_t>;  // begin, count, rank

std::vector<Cut> cuts_of(const Catalog& catalog, const Entry& entry) {
  std::vector<Cut> cuts;
  for (const Chunk& chunk : entry.chunks) {
    cuts.emplace_back(chunk.box.offset[0], chunk.box.size[0],
                      rank_of_file(catalog.files[chunk.extent.file].path));
  }
  std::ranges::sort(cuts);
  return cuts;
}

std::vector<Cut> cuts_of(const PlacedTensor& tensor) {
  std::vector<Cut> cuts;
  for (const Shard& shard : tensor.shards) {
    cuts.emplace_back(shard.box.offset[0], shard.box.size[0], shard.rank);
  }
  return cuts;
}

// Writes the tensors alone, each to its own file, to check their contents.
Catalog write_tensors(const Catalog& source, const std::vector<PlacedTensor>& tensors) {
  PlannedOutput output;
  output.plan.source = SharedCatalog::borrow(source);
  for (const PlacedTensor& placed : tensors) {
    Entry entry{
        placed.tensor.name, placed.tensor.dtype, placed.tensor.shape, {}, placed.tensor.role};
    Extent extent;
    extent.length = static_cast<uint64_t>(entry.bytes());
    extent.file = output.plan.target.add_file(entry.name, extent.length);
    entry.chunks.push_back({{Box::whole(entry.shape)}, {}, extent});
    output.plan.target.entries.push_back(entry);
    output.plan.recipes.push_back(placed.tensor.recipe);
  }
  const auto files = std::make_shared<MemoryFileSystem>();
  files->create_folder("out");
  run(output.plan, *files, "out", {});
  Catalog catalog = output.plan.target;
  catalog.file_system = files;
  for (FileInfo& file : catalog.files) file.path = "out/" + file.path;
  return catalog;
}

class PeersBuckets : public testing::TestWithParam<std::string> {};

TEST_P(PeersBuckets, ComeOutAsMegatronWroteThem) {
  const Checkpoint raw = open(GetParam(), true), checkpoint = open(GetParam(), false);
  RunState state = test::state_of_entries(checkpoint.catalog);
  state.modules = checkpoint.modules;
  state.param_groups = stored_groups(raw.catalog);
  const RunArguments run = read_run_arguments(checkpoint.args.value);
  const PlacedBuckets placed = place_buckets(state, run);
  const Catalog written = write_tensors(checkpoint.catalog, placed.tensors);

  size_t buckets = 0;
  for (const Entry& entry : raw.catalog->entries) buckets += is_bucket_entry(entry.name);
  EXPECT_EQ(placed.tensors.size(), buckets);
  for (size_t i = 0; i < placed.tensors.size(); ++i) {
    const PlacedTensor& tensor = placed.tensors[i];
    const Entry* stored = raw.catalog->find(tensor.tensor.name);
    ASSERT_NE(stored, nullptr) << tensor.tensor.name;
    EXPECT_EQ(tensor.tensor.dtype, stored->dtype);
    ASSERT_EQ(tensor.tensor.shape, stored->shape);
    EXPECT_EQ(cuts_of(tensor), cuts_of(raw.catalog, *stored)) << stored->name;
    const std::string ours = read_tensor(written, written.entries[i], 1 << 24);
    std::string theirs = read_tensor(raw.catalog, *stored, 1 << 24);
    for (const Box& gap : tensor.tensor.recipe.zeros) {  // there whatever memory held
      EXPECT_LT(gap.size[0], 64);
      std::fill_n(theirs.begin() + gap.offset[0] * 4, gap.size[0] * 4, '\0');
    }
    EXPECT_TRUE(ours == theirs) << stored->name;
  }
  size_t objects = 0;
  for (const Object& object : raw.catalog->objects) {
    objects += object.name.find("optimizer.distributed.") != std::string::npos;
  }
  EXPECT_EQ(placed.objects.size(), objects);
  for (const PlacedObject& object : placed.objects) {
    const Object* stored = raw.catalog->find_object(object.name);
    ASSERT_NE(stored, nullptr) << object.name;
    EXPECT_TRUE(pickle_of(object.archive) == stored_pickle(raw.catalog, *stored)) << object.name;
    EXPECT_EQ(object.rank, rank_of_file(raw.catalog->files[stored->extent.file].path));
  }
}

INSTANTIATE_TEST_SUITE_P(Megatron, PeersBuckets,
                         testing::Values("llama_tp2dp2_dpr", "llama_te_tp2dp2_dpr", "llama_pp2vpp",
                                         "llama_dp4_dpr_buckets", "qwen2_pp2",
                                         "qwen3moe_te_ep2pp2_dpr"),
                         [](const auto& param) { return param.param; });

// All that a plan with these buckets and the model's own tensors uses of the source.
void expect_all_used(const Catalog& source, const PlacedBuckets& placed) {
  std::vector<int64_t> used(source.entries.size());
  for (const PlacedTensor& tensor : placed.tensors) {
    const Recipe& recipe = tensor.tensor.recipe;
    for (const Move& move : recipe.moves) used[recipe.inputs[move.input]] += move.elements();
  }
  for (const Dropped& repeated : placed.repeated) used[repeated.entry] += repeated.elements;
  for (size_t i = 0; i < used.size(); ++i) {
    const bool optimizer = source.entries[i].role == Role::optimizer;
    EXPECT_EQ(used[i], optimizer ? source.entries[i].elements() : 0) << source.entries[i].name;
  }
}

TEST(BucketWriter, CountsWhatSeveralRanksHold) {
  const Checkpoint raw = open("llama_tp2dp2_dpr", true),
                   checkpoint = open("llama_tp2dp2_dpr", false);
  RunState state = test::state_of_entries(checkpoint.catalog);
  state.param_groups = stored_groups(raw.catalog);
  RunArguments run = read_run_arguments(checkpoint.args.value);
  run.pipeline = 2;
  run.world_size = 8;
  const PlacedBuckets placed = place_buckets(state, run);
  EXPECT_FALSE(placed.repeated.empty());
  expect_all_used(checkpoint.catalog, placed);
}

TEST(BucketWriter, TakesParametersThatAreTheirOwnMaster) {
  const Checkpoint raw = open("llama_tp2dp2_dpr", true),
                   checkpoint = open("llama_tp2dp2_dpr", false);
  RunState state = test::state_of_entries(checkpoint.catalog);
  state.param_groups = stored_groups(raw.catalog);
  std::erase_if(state.tensors, [](const StateTensor& tensor) {
    return tensor.name.starts_with("optimizer.state.param.");
  });
  const PlacedBuckets placed = place_buckets(state, read_run_arguments(checkpoint.args.value));
  EXPECT_EQ(placed.tensors[0].tensor.name.substr(placed.tensors[0].tensor.name.rfind('.')),
            ".param");
  for (const Move& move : placed.tensors[0].tensor.recipe.moves) {
    const uint32_t entry = placed.tensors[0].tensor.recipe.inputs[move.input];
    EXPECT_EQ(checkpoint.catalog->entries[entry].role, Role::model);
  }
}

TEST(BucketWriter, SaysWhatIsMissing) {
  const Checkpoint raw = open("llama_tp2dp2_dpr", true),
                   checkpoint = open("llama_tp2dp2_dpr", false);
  const RunArguments run = read_run_arguments(checkpoint.args.value);
  const auto message = [&](const RunState& state, const RunArguments& target) {
    try {
      place_buckets(state, target);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  RunState state = test::state_of_entries(checkpoint.catalog);
  EXPECT_THAT(message(state, run), HasSubstr("parameter groups of 0 optimizers"));
  state.param_groups = stored_groups(raw.catalog);
  RunArguments other = run;
  other.other_modules = "mla_down_proj_fusion";
  EXPECT_THAT(message(state, other), HasSubstr("mla_down_proj_fusion"));
  other = run;
  other.tensor = other.expert_tensor = 3;
  EXPECT_THAT(message(state, other), HasSubstr("cannot be split over 3"));
  RunState lacking = state;
  std::erase_if(lacking.tensors, [](const StateTensor& tensor) {
    return tensor.name == "optimizer.state.exp_avg.decoder.layers.mlp.linear_fc1.weight";
  });
  EXPECT_THAT(message(lacking, run), HasSubstr("no exp_avg of decoder.layers.mlp.linear_fc1"));
  std::erase_if(state.tensors,
                [](const StateTensor& tensor) { return tensor.role == Role::optimizer; });
  EXPECT_TRUE(place_buckets(state, run).tensors.empty());
}

}  // namespace
}  // namespace ferry
