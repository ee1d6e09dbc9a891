// Flat buckets of made-up models at layouts that no checkpoint among the fixtures has. The buckets
// are laid out by the same rules that decode them, so that these tests show that decoding undoes
// the layout and knows when it cannot; that the rules are Megatron-LM's is shown by
// optimizer_state_test.cpp and module_order_test.cpp.
#include "ckpt/megatron/optimizer/bucket_optimizer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/megatron/optimizer/buckets/flat_buffer.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::HasSubstr;

struct Model {
  std::vector<ModelTensor> tensors;
  RunArguments run;
  ModuleChoice modules;

  void add(std::string name, Dims shape) {
    tensors.push_back({std::move(name), std::move(shape), DType::bf16});
  }
  void add_layers(const std::string& suffix, Dims shape) {
    shape.insert(shape.begin(), run.layers);
    add("decoder.layers." + suffix, std::move(shape));
  }
};

Model llama(int64_t layers, int64_t hidden, int64_t qkv, int64_t ffn, int64_t vocabulary) {
  Model model;
  model.run.layers = layers;
  model.run.gated_mlp = true;
  model.modules.norms_in_linears = true;
  model.add("embedding.word_embeddings.weight", {vocabulary, hidden});
  model.add_layers("self_attention.linear_proj.weight", {hidden, hidden});
  model.add_layers("self_attention.linear_qkv.layer_norm_weight", {hidden});
  model.add_layers("self_attention.linear_qkv.weight", {qkv, hidden});
  model.add_layers("mlp.linear_fc1.layer_norm_weight", {hidden});
  model.add_layers("mlp.linear_fc1.weight", {2 * ffn, hidden});
  model.add_layers("mlp.linear_fc2.weight", {hidden, ffn});
  model.add("decoder.final_layernorm.weight", {hidden});
  model.add("output_layer.weight", {vocabulary, hidden});
  return model;
}

Model deepseek() {
  Model model;
  RunArguments& run = model.run;
  run.layers = 4;
  run.mtp_layers = 1;
  run.experts = 8;
  run.gated_mlp = true;
  model.modules.norms_in_linears = true;
  model.add("embedding.word_embeddings.weight", {64, 16});
  for (int layer = 0; layer <= 4; ++layer) {
    const bool mtp = layer == 4;
    std::string prefix = fmt::format("decoder.layers.{}.", layer);
    if (mtp) prefix = "mtp.layers.0.transformer_layer.";
    model.add(prefix + "input_layernorm.weight", {16});
    model.add(prefix + "self_attention.linear_proj.weight", {16, 32});
    model.add(prefix + "self_attention.linear_q_down_proj.weight", {12, 16});
    model.add(prefix + "self_attention.linear_q_up_proj.weight", {48, 12});
    model.add(prefix + "self_attention.linear_q_up_proj.layer_norm_weight", {12});
    model.add(prefix + "self_attention.linear_kv_down_proj.weight", {20, 16});
    model.add(prefix + "self_attention.linear_kv_up_proj.weight", {64, 8});
    model.add(prefix + "self_attention.linear_kv_up_proj.layer_norm_weight", {8});
    if (layer == 0) {
      model.add(prefix + "mlp.linear_fc1.layer_norm_weight", {16});
      model.add(prefix + "mlp.linear_fc1.weight", {80, 16});
      model.add(prefix + "mlp.linear_fc2.weight", {16, 40});
      continue;
    }
    model.add(prefix + "pre_mlp_layernorm.weight", {16});
    model.add(prefix + "mlp.router.weight", {8, 16});
    model.add(prefix + "mlp.router.expert_bias", {8});
    model.add(prefix + "mlp.experts.experts.linear_fc1.weight", {8, 24, 16});
    model.add(prefix + "mlp.experts.experts.linear_fc2.weight", {8, 16, 12});
    model.add(prefix + "mlp.shared_experts.linear_fc1.weight", {24, 16});
    model.add(prefix + "mlp.shared_experts.linear_fc2.weight", {16, 12});
  }
  model.add("mtp.layers.0.enorm.weight", {16});
  model.add("mtp.layers.0.hnorm.weight", {16});
  model.add("mtp.layers.0.eh_proj.weight", {16, 32});
  model.add("mtp.layers.0.final_layernorm.weight", {16});
  model.add("decoder.final_layernorm.weight", {16});
  model.add("output_layer.weight", {64, 16});
  return model;
}

// Every element of the model has a value of its own.
float value_of(uint32_t tensor, int64_t element) {
  return static_cast<float>(tensor * 100003 + element);
}

class Writer {
 public:
  Writer(const Model& model, bool with_data)
      : layout_(model.tensors, model.run), model_(model), with_data_(with_data) {
    catalog_.file_system = files_;
  }

  Catalog write() {
    const RunArguments& run = model_.run;
    const bool separate = run.expert > 1;
    for (int64_t stage = 0; stage < run.pipeline; ++stage) {
      bool experts = false;
      for (int64_t chunk = 0; chunk < layout_.pipeline().chunks(); ++chunk) {
        for (const auto& p : layout_.parameters({0, 0, 0, stage, chunk}, model_.modules)) {
          experts |= separate && p.routed_expert;
        }
      }
      for (int64_t tensor = 0; tensor < run.tensor; ++tensor) {
        write_group({tensor, 0, 0, stage, 0}, experts ? "chained_0." : "",
                    tensor + run.tensor * stage, run.dense_data_parallel(), false, separate);
      }
      for (int64_t i = 0; experts && i < run.expert * run.expert_tensor; ++i) {
        const RankCoordinates rank{0, i % run.expert_tensor, i / run.expert_tensor, stage, 0};
        write_group(rank, "chained_1.", i + run.expert_tensor * run.expert * stage,
                    run.expert_data_parallel(), true, separate);
      }
    }
    return std::move(catalog_);
  }

 private:
  void write_group(RankCoordinates rank, const std::string& chained, int64_t group, int64_t ranks,
                   bool experts, bool separate) {
    int64_t buffer = 0;
    for (rank.chunk = 0; rank.chunk < layout_.pipeline().chunks(); ++rank.chunk) {
      std::vector<LocalParameter> parameters;
      std::vector<FlatParameter> sizes;
      for (LocalParameter& p : layout_.parameters(rank, model_.modules)) {
        if (!p.trainable || (separate && p.routed_expert) != experts) continue;
        sizes.push_back({p.elements, p.shared_embedding});
        parameters.push_back(std::move(p));
      }
      if (parameters.empty()) continue;
      const FlatBuffer flat = lay_out_flat_buffer(
          sizes, {ranks, model_.run.bucket_limit(rank.stage, rank.chunk, 0), false});
      for (size_t bucket = 0; bucket < flat.buckets.size(); ++bucket) {
        for (const char* state : {"param", "exp_avg", "exp_avg_sq"}) {
          const std::string name = fmt::format(
              "{}optimizer.distributed.dp_group_idx_{}.gbuf_idx_{}.dtype_(torch.bfloat16, "
              "torch.float32).bucket_idx_{}.{}",
              chained, group, buffer, bucket, state);
          write_bucket(name, parameters, flat, bucket, ranks);
        }
      }
      ++buffer;
    }
  }

  void write_bucket(const std::string& name, const std::vector<LocalParameter>& parameters,
                    const FlatBuffer& flat, size_t bucket, int64_t ranks) {
    const FlatBucket& sizes = flat.buckets[bucket];
    std::set<int64_t> cuts = {0, sizes.unpadded};
    for (const FlatPlace& place : flat.places) {
      if (place.bucket != bucket) continue;
      cuts.insert(place.begin);
      cuts.insert(place.end);
    }
    for (int64_t rank = 1; rank < ranks; ++rank) {
      const int64_t cut = rank * (sizes.elements / ranks);
      if (cut < sizes.unpadded) cuts.insert(cut);
    }
    catalog_.files.push_back({name, static_cast<uint64_t>(sizes.unpadded) * 4});
    const auto file = static_cast<uint32_t>(catalog_.files.size() - 1);
    Entry entry{name, DType::f32, {sizes.unpadded}, {}, Role::optimizer};
    for (auto end = std::next(cuts.begin()); end != cuts.end(); ++end) {
      const int64_t begin = *std::prev(end);
      Extent extent;
      extent.file = file;
      extent.offset = static_cast<uint64_t>(begin) * 4;
      extent.length = static_cast<uint64_t>(*end - begin) * 4;
      entry.chunks.push_back({{Box{{begin}, {*end - begin}}}, {}, extent});
    }
    std::reverse(entry.chunks.begin(), entry.chunks.end());  // the order says nothing
    catalog_.entries.push_back(std::move(entry));
    if (with_data_) files_->put(name, content(parameters, flat, bucket));
  }

  std::string content(const std::vector<LocalParameter>& parameters, const FlatBuffer& flat,
                      size_t bucket) const {
    std::vector<float> values(flat.buckets[bucket].unpadded, -1);  // gaps
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (flat.places[i].bucket != bucket) continue;
      int64_t at = flat.places[i].begin;
      for (const Shard& shard : parameters[i].shards) {
        const Dims strides = row_major_strides(layout_.tensors()[shard.tensor].shape);
        for_each(shard.box, [&](const Dims& position) {
          int64_t element = 0;
          for (size_t axis = 0; axis < position.size(); ++axis) {
            element += position[axis] * strides[axis];
          }
          values[at++] = value_of(shard.tensor, element);
        });
      }
    }
    std::string bytes(values.size() * 4, '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  template <typename Visit>
  static void for_each(const Box& box, Visit visit) {
    Dims position = box.offset;
    while (true) {
      visit(position);
      size_t axis = position.size();
      while (axis > 0 && ++position[axis - 1] == box.offset[axis - 1] + box.size[axis - 1]) {
        --axis;
        position[axis] = box.offset[axis];
      }
      if (axis == 0) return;
    }
  }

  ModelLayout layout_;
  const Model& model_;
  bool with_data_;
  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
  Catalog catalog_;
};

void expect_decodes(const Model& model) {
  Catalog catalog = Writer(model, true).write();
  const ModelLayout layout(model.tensors, model.run);
  catalog.entries = decode_buckets(catalog, layout).entries;
  size_t trainable = 0;
  for (const ModelTensor& tensor : model.tensors)
    trainable += !tensor.name.ends_with("expert_bias");
  EXPECT_EQ(catalog.entries.size(), 3 * trainable);
  for (uint32_t i = 0; i < model.tensors.size(); ++i) {
    if (model.tensors[i].name.ends_with("expert_bias")) continue;
    const Entry* entry = catalog.find("optimizer.state.exp_avg." + model.tensors[i].name);
    ASSERT_NE(entry, nullptr) << model.tensors[i].name;
    EXPECT_EQ(entry->shape, model.tensors[i].shape);
    ASSERT_NO_THROW(check_chunks(catalog, *entry));
    const std::string bytes = read_tensor(catalog, *entry, 1 << 24);
    std::vector<float> values(bytes.size() / 4);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (size_t element = 0; element < values.size(); ++element) {
      ASSERT_EQ(values[element], value_of(i, static_cast<int64_t>(element))) << entry->name;
    }
  }
}

std::string refusal(const Model& written, const Model& read) {
  const Catalog catalog = Writer(written, false).write();
  try {
    decode_buckets(catalog, ModelLayout(read.tensors, read.run));
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::unsupported || error.kind() == ErrorKind::mismatch);
    return error.what();
  }
  ADD_FAILURE() << "decoded";
  return {};
}

TEST(BucketOptimizer, DecodesTensorPipelineVirtualAndDataParallel) {
  Model model = llama(8, 16, 32, 24, 64);
  model.run.tensor = model.run.expert_tensor = 2;
  model.run.pipeline = 2;
  model.run.virtual_pipeline = 2;
  model.run.world_size = 12;  // three data-parallel ranks: cuts inside of parameters
  expect_decodes(model);
  model.modules.norms_in_linears = false;
  expect_decodes(model);
  model.run.virtual_pipeline = 1;
  model.run.overlap_grad_reduce = true;
  model.run.bucket_elements = 1500;
  expect_decodes(model);
}

TEST(BucketOptimizer, DecodesTiedEmbeddingsOverStages) {
  Model model = llama(4, 16, 32, 24, 64);
  model.tensors.pop_back();
  model.run.pipeline = 4;
  model.run.world_size = 8;
  expect_decodes(model);
}

TEST(BucketOptimizer, DecodesLatentAttentionExpertsAndMtp) {
  Model model = deepseek();
  model.run.pipeline = 2;
  model.run.expert = 2;
  model.run.world_size = 8;
  model.run.first_stage_layers = 1;  // no experts in the first stage
  expect_decodes(model);
  model.modules.experts = ModuleChoice::Experts::grouped;
  expect_decodes(model);
  model.run.tensor = 2;
  model.run.expert_tensor = 1;
  expect_decodes(model);
  model.modules.split_latent_down = true;
  expect_decodes(model);
  model.run.expert = 4;
  model.run.expert_tensor = 2;
  model.run.world_size = 16;
  expect_decodes(model);
}

TEST(BucketOptimizer, DecodesACustomPipelineLayout) {
  Model model = deepseek();
  model.run.pipeline = 2;
  model.run.stage_letters = {"Et", "tt", "tm", "L"};
  model.run.world_size = 4;
  model.run.expert = 2;
  expect_decodes(model);
  model.run.expert = 1;  // experts share the others' buffers
  expect_decodes(model);
}

// Without a gate both projections of an expert have one size.
TEST(BucketOptimizer, ArgumentsIdentifyGroupedExpertsOfOneSize) {
  Model model = deepseek();
  for (ModelTensor& tensor : model.tensors) {
    if (tensor.name.find("experts.experts.linear_fc1") != std::string::npos) {
      tensor.shape = {8, 12, 16};
    }
  }
  model.run.gated_mlp = false;
  model.run.expert = 2;
  model.run.world_size = 2;
  expect_decodes(model);
  model.run.transformer_engine = model.run.grouped_experts = true;
  model.modules.experts = ModuleChoice::Experts::grouped;
  expect_decodes(model);
  model.run.expert = 8;  // one expert a rank: both orders are the same
  model.run.world_size = 8;
  expect_decodes(model);
}

TEST(BucketOptimizer, RefusesOrdersThatFitAlike) {
  Model model = llama(4, 16, 3, 24, 64);  // one head of one number: a projection as long as a norm
  model.run.world_size = 1;
  for (ModelTensor& tensor : model.tensors) {
    if (tensor.name.ends_with("linear_proj.weight")) tensor.shape = {4, 16, 1};
  }
  EXPECT_THAT(refusal(model, model), HasSubstr("two orders of the parameters fit"));
}

TEST(BucketOptimizer, RefusesWhatDoesNotFit) {
  Model model = llama(4, 16, 32, 24, 64);
  model.run.tensor = model.run.expert_tensor = 2;
  model.run.world_size = 6;
  Model other = model;
  other.run.world_size = 2;
  EXPECT_THAT(refusal(model, other), HasSubstr("chunk boundary"));
  other = model;
  other.run.tensor = 4;
  EXPECT_THAT(refusal(model, other), HasSubstr("2 flat buffers"));
  other = model;
  other.run.tensor = 1;
  EXPECT_THAT(refusal(model, other), HasSubstr("elements of param in bucket 0"));
  other = model;
  other.run.overlap_grad_reduce = true;
  other.run.bucket_elements = 1000;
  EXPECT_THAT(refusal(model, other), HasSubstr("buckets"));
  other = model;
  for (ModelTensor& tensor : other.tensors) {  // of one size, but in other places
    if (tensor.name.ends_with("linear_qkv.weight")) tensor.shape = {4, 33, 16};
    if (tensor.name.ends_with("linear_proj.weight")) tensor.shape = {4, 16, 15};
  }
  other.run.tensor = 1;
  model.run.tensor = 1;
  EXPECT_THAT(refusal(model, other), HasSubstr("no order"));
}

TEST(BucketOptimizer, DecodesAHugeRunAtOnce) {
  // Llama 3.1 405B on 16,384 ranks.
  Model model = llama(126, 16384, 18432, 53248, 128256);
  model.run.tensor = model.run.expert_tensor = 8;
  model.run.pipeline = 9;
  model.run.virtual_pipeline = 7;
  model.run.world_size = 8 * 9 * 227;
  const Catalog catalog = Writer(model, false).write();
  const ModelLayout layout(model.tensors, model.run);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Entry> entries = decode_buckets(catalog, layout).entries;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 20) << "seconds; under one is usual";
  ASSERT_EQ(entries.size(), 27u);
  for (const Entry& entry : entries) EXPECT_NO_THROW(check_chunks(catalog, entry));
}

}  // namespace
}  // namespace ferry
