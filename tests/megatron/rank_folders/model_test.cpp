// Legacy forms that no checkpoint among the fixtures has, made by hand from a known model: names
// and QKV orders from before Megatron Core, virtual stages, and the three ways of storing experts.
#include "ckpt/megatron/rank_folders/model.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/megatron/rank_folders/optimizer.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using Rows = std::vector<std::vector<float>>;

// Element (row, column) of the model's tensor number `tensor`.
float value(int tensor, int64_t row, int64_t column) {
  return static_cast<float>(tensor * 10000 + row * 100 + column);
}

Rows rows_of(int tensor, std::vector<int64_t> rows, int64_t first_column, int64_t columns) {
  Rows result;
  for (int64_t row : rows) {
    std::vector<float>& one = result.emplace_back();
    for (int64_t c = 0; c < columns; ++c) one.push_back(value(tensor, row, first_column + c));
  }
  return result;
}

std::vector<int64_t> range(int64_t begin, int64_t count) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(begin + i);
  return numbers;
}

class Builder {
 public:
  Builder() { catalog.file_system = files_; }

  RankTensor store(const std::string& name, const Rows& rows, bool vector = false) {
    std::vector<float> values;
    for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
    Dims shape = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())};
    if (vector) shape = {static_cast<int64_t>(values.size())};
    return store(name, values, std::move(shape));
  }

  RankTensor store(const std::string& name, const std::vector<float>& values, Dims shape) {
    std::string bytes(values.size() * 4, '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    const std::string path = "f" + std::to_string(catalog.files.size());
    files_->put(path, bytes);
    Chunk chunk{{Box::whole(shape)}, {}, {}};
    chunk.extent.file = catalog.add_file(path, bytes.size());
    chunk.extent.length = bytes.size();
    return {name, DType::f32, std::move(shape), std::move(chunk)};
  }

  // The entries of a placed model, by name, read.
  std::map<std::string, std::vector<float>> read(const std::vector<RankFolder>& folders,
                                                 const LegacyModel& model, int64_t heads) {
    std::vector<Entry> entries;
    for (const ModelTensor& tensor : model.tensors) {
      entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}, Role::model});
    }
    for (size_t i = 0; i < folders.size(); ++i) {
      for (const LegacyChunk& chunk : model.ranks[i]) {
        for (const LegacyTensor& tensor : chunk) {
          for (const auto& part : tensor.parts) {
            const bool given =
                part.parameter.routed_expert ? folders[i].gives_experts : folders[i].gives_dense;
            if (!given || !part.parameter.first_copy) continue;
            give_pieces(part, *tensor.stored, heads, [&](uint32_t number, Chunk piece) {
              entries[number].chunks.push_back(std::move(piece));
            });
          }
        }
      }
    }
    return read(std::move(entries));
  }

  std::map<std::string, std::vector<float>> read(std::vector<Entry> entries) {
    std::map<std::string, std::vector<float>> result;
    catalog.entries = std::move(entries);
    for (const Entry& entry : catalog.entries) {
      EXPECT_NO_THROW(check_chunks(catalog, entry)) << entry.name;
      const std::string bytes = read_tensor(catalog, entry, 1 << 20);
      std::vector<float>& values = result[entry.name];
      values.resize(bytes.size() / 4);
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    return result;
  }

  Catalog catalog;

 private:
  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
};

std::vector<float> joined(std::initializer_list<Rows> parts) {
  std::vector<float> values;
  for (const Rows& rows : parts) {
    for (const auto& row : rows) values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

// hidden 8, 4 heads of 2, ffn 12, vocabulary 16: 2 tensor ranks, 2 stages of one layer.
enum { kWords, kPositions, kQkv, kProj = 4, kFc1 = 6, kFc2 = 8, kNorm = 10 };

class BeforeCore : public testing::TestWithParam<int> {};

TEST_P(BeforeCore, NamesAndRowOrdersAreUndone) {
  RunArguments run;
  run.layers = 2;
  run.tensor = run.expert_tensor = 2;
  run.pipeline = 2;
  const auto folders = expected_rank_folders(run);
  Builder builder;
  std::vector<LegacyRank> ranks;
  for (const RankFolder& folder : folders) {
    const int64_t t = folder.rank.tensor;
    const int layer = static_cast<int>(folder.rank.stage);
    std::vector<RankTensor>& tensors = ranks.emplace_back().chunks.emplace_back();
    const auto add = [&](const std::string& name, const Rows& rows, bool vector = false) {
      tensors.push_back(builder.store(name, rows, vector));
    };
    const std::string encoder = GetParam() == 0 ? "language_model.transformer.layers.0."
                                                : "language_model.encoder.layers.0.";
    if (layer == 0) {
      add("language_model.embedding.word_embeddings.weight",
          rows_of(kWords, range(8 * t, 8), 0, 8));
      add("language_model.embedding.position_embeddings.weight",
          rows_of(kPositions, range(0, 5), 0, 8));
    }
    add(encoder + "input_layernorm.weight", rows_of(kNorm + layer, {0}, 0, 8), true);
    std::vector<int64_t> order;  // global row of each local row: head, kind, element
    for (int64_t i = 0; i < 12; ++i) {
      int64_t head = i / 6, kind = i / 2 % 3, d = i % 2;               // [heads, 3, dim]
      if (GetParam() == 0) kind = i / 4, head = i / 2 % 2;             // [3, heads, dim]
      if (GetParam() == 1) head = i / 6, d = i / 3 % 2, kind = i % 3;  // [heads, dim, 3]
      order.push_back((2 * t + head) * 6 + kind * 2 + d);
    }
    const char* attention = GetParam() == 0 ? "attention." : "self_attention.";
    add(encoder + attention + "query_key_value.weight", rows_of(kQkv + layer, order, 0, 8));
    Rows bias;
    for (int64_t row : order) bias.push_back({value(kQkv + layer, row, 50)});
    add(encoder + attention + "query_key_value.bias", bias, true);
    add(encoder + attention + "dense.weight", rows_of(kProj + layer, range(0, 8), 4 * t, 4));
    add(encoder + "post_attention_layernorm.weight", rows_of(kNorm + layer, {1}, 0, 8), true);
    add(encoder + "mlp.dense_h_to_4h.weight", rows_of(kFc1 + layer, range(6 * t, 6), 0, 8));
    add(encoder + "mlp.dense_4h_to_h.weight", rows_of(kFc2 + layer, range(0, 8), 6 * t, 6));
    if (layer == 0) continue;
    add(encoder.substr(0, encoder.size() - 9) + "final_layernorm.weight", rows_of(kNorm, {9}, 0, 8),
        true);
    add("word_embeddings_for_head.weight", rows_of(kWords, range(8 * t, 8), 0, 8));
  }
  LegacyModelOptions options;
  options.tied = true;
  options.checkpoint_version = GetParam();
  const LegacyModel model = place_legacy_model(folders, ranks, run, options);
  const auto read = builder.read(folders, model, 2);
  EXPECT_EQ(read.size(), 10u);
  EXPECT_EQ(read.at("embedding.word_embeddings.weight"),
            joined({rows_of(kWords, range(0, 16), 0, 8)}));
  EXPECT_EQ(read.at("decoder.layers.self_attention.linear_qkv.weight"),
            joined({rows_of(kQkv, range(0, 24), 0, 8), rows_of(kQkv + 1, range(0, 24), 0, 8)}));
  EXPECT_EQ(read.at("decoder.layers.self_attention.linear_qkv.bias"),
            joined({rows_of(kQkv, range(0, 24), 50, 1), rows_of(kQkv + 1, range(0, 24), 50, 1)}));
  EXPECT_EQ(read.at("decoder.layers.self_attention.linear_qkv.layer_norm_weight"),
            joined({rows_of(kNorm, {0}, 0, 8), rows_of(kNorm + 1, {0}, 0, 8)}));
  EXPECT_EQ(read.at("decoder.layers.self_attention.linear_proj.weight"),
            joined({rows_of(kProj, range(0, 8), 0, 8), rows_of(kProj + 1, range(0, 8), 0, 8)}));
  EXPECT_EQ(read.at("decoder.layers.mlp.linear_fc1.layer_norm_weight"),
            joined({rows_of(kNorm, {1}, 0, 8), rows_of(kNorm + 1, {1}, 0, 8)}));
  EXPECT_EQ(read.at("decoder.layers.mlp.linear_fc1.weight"),
            joined({rows_of(kFc1, range(0, 12), 0, 8), rows_of(kFc1 + 1, range(0, 12), 0, 8)}));
  EXPECT_EQ(read.at("decoder.layers.mlp.linear_fc2.weight"),
            joined({rows_of(kFc2, range(0, 8), 0, 12), rows_of(kFc2 + 1, range(0, 8), 0, 12)}));
  EXPECT_EQ(read.at("decoder.final_layernorm.weight"), joined({rows_of(kNorm, {9}, 0, 8)}));
}

INSTANTIATE_TEST_SUITE_P(CheckpointVersions, BeforeCore, testing::Values(0, 1, 2));

enum class ExpertNames { one_by_one, numbered, grouped };

class LegacyExperts : public testing::TestWithParam<ExpertNames> {};

// 4 experts on 2 expert-parallel ranks, gated, hidden 4, ffn 3; two virtual stages of one layer on
// each of two stages.
TEST_P(LegacyExperts, AreOneTensorWithTheirOptimizerState) {
  RunArguments run;
  run.layers = 4;
  run.pipeline = run.virtual_pipeline = 2;
  run.expert = 2;
  run.experts = 4;
  run.world_size = 4;
  run.gated_mlp = true;
  const auto folders = expected_rank_folders(run);
  ASSERT_EQ(folders.size(), 4u);
  Builder builder;
  std::vector<LegacyRank> ranks;
  const auto fc1 = [](int64_t layer, int64_t e) { return static_cast<int>(10 + layer * 4 + e); };
  const auto fc2 = [](int64_t layer, int64_t e) { return static_cast<int>(50 + layer * 4 + e); };
  for (const RankFolder& folder : folders) {
    LegacyRank& rank = ranks.emplace_back();
    FlatOptimizer dense, experts;
    for (int64_t v = 0; v < 2; ++v) {
      const int64_t layer = v * 2 + folder.rank.stage;
      std::vector<RankTensor>& tensors = rank.chunks.emplace_back();
      const Rows router = rows_of(static_cast<int>(layer), range(0, 4), 0, 4);
      tensors.push_back(builder.store("decoder.layers.0.mlp.router.weight", router));
      dense.buffers.push_back({{{"exp_avg", builder.store("d", joined({router}), {16})}}});

      const int64_t first = folder.rank.expert * 2;
      const std::string prefix = "decoder.layers.0.mlp.experts.";
      std::vector<std::vector<float>> registered;  // the parameters, as they are stored
      const auto add = [&](const std::string& name, const Rows& rows) {
        tensors.push_back(builder.store(prefix + name, rows));
        registered.push_back(joined({rows}));
      };
      const auto fc1_rows = [&](int64_t e) { return rows_of(fc1(layer, e), range(0, 6), 0, 4); };
      const auto fc2_rows = [&](int64_t e) { return rows_of(fc2(layer, e), range(0, 4), 0, 3); };
      if (GetParam() == ExpertNames::one_by_one) {
        for (int64_t e : {0, 1}) {
          const std::string local = fmt::format("local_experts.{}.", e);
          add(local + "linear_fc1.weight", fc1_rows(first + e));
          add(local + "linear_fc2.weight", fc2_rows(first + e));
        }
      } else if (GetParam() == ExpertNames::numbered) {
        for (int64_t e : {0, 1}) add(fmt::format("linear_fc1.weight{}", e), fc1_rows(first + e));
        for (int64_t e : {0, 1}) add(fmt::format("linear_fc2.weight{}", e), fc2_rows(first + e));
      } else {
        std::vector<float> weight1, weight2;  // expert by expert, transposed
        for (int64_t e = first; e < first + 2; ++e) {
          for (int64_t h = 0; h < 4; ++h) {
            for (int64_t f = 0; f < 6; ++f) weight1.push_back(value(fc1(layer, e), f, h));
          }
          for (int64_t f = 0; f < 3; ++f) {
            for (int64_t h = 0; h < 4; ++h) weight2.push_back(value(fc2(layer, e), h, f));
          }
        }
        tensors.push_back(builder.store(prefix + "weight1", weight1, {4, 12}));
        tensors.push_back(builder.store(prefix + "weight2", weight2, {6, 4}));
        registered = {weight1, weight2};
      }
      std::vector<float> flat;
      for (size_t i = registered.size(); i-- > 0;) {
        flat.resize((flat.size() + 63) / 64 * 64, -1);
        flat.insert(flat.end(), registered[i].begin(), registered[i].end());
      }
      const auto size = static_cast<int64_t>(flat.size());
      experts.buffers.push_back({{{"exp_avg", builder.store("e", flat, {size})}}});
    }
    rank.flat = {std::nullopt, experts};
    if (folder.rank.expert == 0) rank.flat[0] = dense;
  }
  LegacyModelOptions options;
  const LegacyModel model = place_legacy_model(folders, ranks, run, options);
  const auto read = builder.read(folders, model, 0);
  OptimizerEntries collected(model.tensors);
  add_flat_state(folders, ranks, model, run, 0, collected);
  const auto state = builder.read(collected.take());
  std::vector<float> expected_fc1, expected_fc2;
  for (int64_t layer = 0; layer < 4; ++layer) {
    for (int64_t e = 0; e < 4; ++e) {
      for (float x : joined({rows_of(fc1(layer, e), range(0, 6), 0, 4)})) expected_fc1.push_back(x);
      for (float x : joined({rows_of(fc2(layer, e), range(0, 4), 0, 3)})) expected_fc2.push_back(x);
    }
  }
  EXPECT_EQ(read.size(), 3u);
  EXPECT_EQ(state.size(), 3u);
  const std::string fc1_name = "decoder.layers.mlp.experts.experts.linear_fc1.weight";
  const std::string fc2_name = "decoder.layers.mlp.experts.experts.linear_fc2.weight";
  EXPECT_EQ(read.at(fc1_name), expected_fc1);
  EXPECT_EQ(read.at(fc2_name), expected_fc2);
  EXPECT_EQ(state.at("optimizer.state.exp_avg." + fc1_name), expected_fc1);
  EXPECT_EQ(state.at("optimizer.state.exp_avg." + fc2_name), expected_fc2);
  const std::vector<float> router =
      joined({rows_of(0, range(0, 4), 0, 4), rows_of(1, range(0, 4), 0, 4),
              rows_of(2, range(0, 4), 0, 4), rows_of(3, range(0, 4), 0, 4)});
  EXPECT_EQ(read.at("decoder.layers.mlp.router.weight"), router);
  EXPECT_EQ(state.at("optimizer.state.exp_avg.decoder.layers.mlp.router.weight"), router);
}

INSTANTIATE_TEST_SUITE_P(Forms, LegacyExperts,
                         testing::Values(ExpertNames::one_by_one, ExpertNames::numbered,
                                         ExpertNames::grouped));

}  // namespace
}  // namespace ferry
