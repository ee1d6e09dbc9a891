// Adapters inside checkpoints: names as PEFT, Megatron Bridge, torchtune and NeMo Automodel give
// them, and files that PEFT's models made (tests/interop/fixtures/make_adapters.py).
#include "convert/adapters.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "convert/base_only.h"
#include "convert/state_dict/state_dict.h"
#include "tests/support.h"

namespace ferry {
namespace {

using test::fixture;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kAdapterMemory = 1 << 20;

Catalog named(const std::vector<std::pair<std::string, Dims>>& tensors) {
  Catalog catalog;
  for (const auto& [name, shape] : tensors) {
    catalog.entries.push_back({name, DType::bf16, shape, {}, Role::model});
  }
  return catalog;
}

AdapterSummary summary_of(const Catalog& catalog) {
  return summarise(catalog, adapter_tensors(catalog));
}

AdapterSummary summary_of(const std::vector<std::pair<std::string, Dims>>& tensors) {
  return summary_of(named(tensors));
}

std::map<std::string, std::string> contents_of(const Catalog& catalog) {
  std::map<std::string, std::string> all;
  for (const Entry& entry : catalog.entries) {
    all[entry.name] = read_tensor(catalog, entry, kAdapterMemory);
  }
  return all;
}

Checkpoint open_fixture(const std::string& name) {
  return open_checkpoint(posix_file_system(), fixture(name));
}

std::map<std::string, std::string> base_tensors() {
  return contents_of(open_fixture("foreign/model").catalog);
}

std::string failure(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(Adapters, AreKnownInWhateverSavedThem) {
  for (const char* name : {"in_model", "dcp", "ranks", "old.pt"}) {
    const Checkpoint checkpoint = open_fixture(std::string("adapters/") + name);
    const AdapterSummary found = summary_of(checkpoint.catalog);
    EXPECT_EQ(found.tensors, 8) << name;
    EXPECT_EQ(found.parameters, 224) << name;
    EXPECT_THAT(found.ranks, ElementsAre(2)) << name;
    EXPECT_THAT(found.targets, testing::UnorderedElementsAre("q_proj", "v_proj")) << name;
    EXPECT_THAT(found.methods, ElementsAre("LoRA")) << name;
    EXPECT_THAT(found.names, ElementsAre("default")) << name;
    EXPECT_FALSE(found.alone) << name;
    EXPECT_EQ(found.wrapped, std::string(name) == "old.pt" ? 0 : 4) << name;
  }
}

TEST(Adapters, OfSeveralKindsAreAllNamed) {
  const AdapterSummary found = summary_of(open_fixture("adapters/many.pt").catalog);
  EXPECT_EQ(found.tensors, 14);
  EXPECT_THAT(found.ranks, ElementsAre(2, 3, 4));
  EXPECT_THAT(found.replaced, ElementsAre("lm_head"));
  EXPECT_EQ(to_text(found),
            "DoRA of ranks 2, 3, 4 on embed_tokens, q_proj, o_proj, with trained copies of lm_head "
            "(adapters default, other)");
}

// lora_A of fused experts is [rank * experts, in].
TEST(Adapters, OfFusedExpertsHaveTheRankOfOne) {
  const AdapterSummary found = summary_of(open_fixture("adapters/experts.pt").catalog);
  EXPECT_EQ(to_text(found), "LoRA of rank 2 on q_proj, experts");
  EXPECT_EQ(found.tensors, 6);
}

TEST(Adapters, OfMegatronBridgeAreKnown) {
  const AdapterSummary fused = summary_of(
      {{"decoder.layers.self_attention.linear_qkv.adapter.linear_in.weight", {4, 8, 32}},
       {"decoder.layers.self_attention.linear_qkv.adapter.linear_out.weight", {4, 128, 8}},
       {"decoder.layers.mlp.experts.experts.linear_fc2.adapter.linear_in.weight", {4, 4, 6, 16}},
       {"decoder.layers.mlp.experts.experts.linear_fc2.adapter.linear_out.weight", {4, 32, 6}}});
  EXPECT_EQ(to_text(fused), "LoRA of ranks 6, 8 on linear_qkv, linear_fc2");
  EXPECT_TRUE(fused.alone);
  const AdapterSummary apart = summary_of(
      {{"decoder.layers.self_attention.linear_qkv.weight", {4, 128, 32}},
       {"decoder.layers.self_attention.linear_qkv.adapter.adapter_q.linear_in.weight", {4, 4, 32}},
       {"decoder.layers.self_attention.linear_qkv.adapter.adapter_q.linear_out.weight", {4, 64, 4}},
       {"decoder.layers.self_attention.linear_proj.to_wrap.weight", {4, 32, 64}},
       {"decoder.layers.self_attention.linear_proj.adapter.weight_magnitude", {4, 32}}});
  EXPECT_EQ(to_text(apart), "DoRA of rank 4 on linear_qkv.adapter_q, linear_proj");
  EXPECT_EQ(apart.tensors, 3);
}

TEST(Adapters, OfOtherProgramsAndMethodsAreKnown) {
  EXPECT_EQ(to_text(summary_of({{"layers.0.attn.q_proj.weight", {64, 32}},
                                {"layers.0.attn.q_proj.lora_a.weight", {4, 32}},
                                {"layers.0.attn.q_proj.lora_b.weight", {64, 4}},
                                {"layers.0.attn.q_proj.magnitude", {64}}})),
            "DoRA of rank 4 on q_proj");
  EXPECT_EQ(to_text(summary_of({{"model.layers.0.mlp.experts.gate_and_up_projs", {4, 32, 24}},
                                {"model.layers.0.mlp.experts.lora_gate_and_up_A", {4, 32, 3}},
                                {"model.layers.0.mlp.experts.lora_gate_and_up_B", {4, 3, 24}}})),
            "LoRA of rank 3 on experts");
  EXPECT_EQ(to_text(summary_of({{"conv.base_layer.weight", {8, 6, 3, 3}},
                                {"conv.lora_A.default.weight", {5, 6, 3, 3}},
                                {"conv.lora_B.default.weight", {8, 5, 1, 1}}})),
            "LoRA of rank 5 on conv");
  // What stands next to a wrapped tensor is an adapter's, whatever it is called.
  EXPECT_EQ(to_text(summary_of({{"base_model.model.h.0.fc.base_layer.weight", {8, 8}},
                                {"base_model.model.h.0.fc.invented_R.default.weight", {4}}})),
            "invented_R on fc");
  EXPECT_EQ(to_text(summary_of(
                {{"base_model.model.wte.token_adapter.base_layer.weight", {8, 4}},
                 {"base_model.model.wte.token_adapter.trainable_tokens_delta.default", {2, 4}}})),
            "trainable_tokens on wte");
}

TEST(Adapters, OwnNamesAreWithoutWrappers) {
  const std::pair<const char*, const char*> names[] = {
      {"base_model.model.model.layers.0.q_proj.base_layer.weight", "model.layers.0.q_proj.weight"},
      {"base_model.model.base_model.model.lm_head.original_module.weight", "lm_head.weight"},
      {"module.base_model.model.model.norm.weight", "model.norm.weight"},
      {"_orig_mod.base_model.model.model.norm.weight", "model.norm.weight"},
      {"base_model.model.h.0.experts.base_layer.base_layer.down_proj", "h.0.experts.down_proj"},
      {"base_model.model.wte.token_adapter.base_layer.weight", "wte.weight"},
      {"state.model.base_model.model.model.norm.weight", "state.model.model.norm.weight"}};
  for (const auto& [stored, own] : names) EXPECT_EQ(name_without_wrappers(stored), own);
}

// Names of models that look like adapters' and are none.
TEST(Adapters, AreNotSeenInModels) {
  const AdapterSummary found =
      summary_of({{"model.layers.0.self_attn.q_a_proj.weight", {8, 8}},
                  {"model.layers.0.attn.w_lora.lora.0.weight", {8, 8}},
                  {"model.layers.0.adapter.weight", {8, 8}},
                  {"model.layers.0.adapter.linear.weight", {8, 8}},
                  {"prompt_encoder.point_embeddings.0.weight", {8, 8}},
                  {"base_layer.weight", {8, 8}},
                  {"model.layers.0.mlp.magnitude", {8}},
                  {"optimizer.state.q_proj.lora_A.default.weight.exp_avg", {8, 8}}});
  EXPECT_FALSE(found.any());
}

TEST(Adapters, ModelsAreWrittenWithoutThemOnRequestAlone) {
  for (const char* name : {"dcp", "ranks", "many.pt", "old.pt"}) {
    const Checkpoint checkpoint = open_fixture(std::string("adapters/") + name);
    StateDictOptions options;
    options.config_folder = fixture("foreign/model");
    for (const bool drop : {false, true}) {
      options.drop_unknown = drop;
      EXPECT_THAT(failure(ErrorKind::unsupported, [&] { read_state_dict(checkpoint, options); }),
                  AllOf(HasSubstr("holds a model and an adapter"), HasSubstr("q_proj"),
                        HasSubstr("merge_and_unload"), HasSubstr("options.base_only")))
          << name;
    }
    options.base_only = true;
    options.drop_unknown = false;
    const StateDict base = read_state_dict(checkpoint, options);
    EXPECT_EQ(contents_of(base.model.catalog), base_tensors()) << name;
    EXPECT_THAT(base.warnings,
                testing::Contains(AllOf(HasSubstr("adapter is left out"), HasSubstr("tensors"))));
  }
}

// Choosing or renaming around the adapter writes the model without it, too.
TEST(Adapters, AreNotLeftOutByChoosingOrRenaming) {
  const Checkpoint checkpoint = open_fixture("adapters/dcp");
  StateDictOptions options;
  options.config_folder = fixture("foreign/model");
  options.drop_unknown = true;
  options.is_chosen = [](std::string_view name) {
    return name.starts_with("model.") && name.find("lora_") == std::string_view::npos;
  };
  EXPECT_THAT(failure(ErrorKind::unsupported, [&] { read_state_dict(checkpoint, options); }),
              HasSubstr("8 tensors"));
  options.rename = [](std::string_view name) {
    std::string text(name);
    const size_t at = text.find(".base_layer");
    return at == std::string::npos ? text : text.erase(at, 11);
  };
  EXPECT_THAT(failure(ErrorKind::unsupported, [&] { read_state_dict(checkpoint, options); }),
              HasSubstr("8 tensors"));
}

// The average of a model, next to one with an adapter, has none.
TEST(Adapters, ConcernTheModelThatIsChosen) {
  Checkpoint checkpoint = open_fixture("adapters/old.pt");
  const Checkpoint plain = open_fixture("foreign/average.pt");
  Catalog& catalog = checkpoint.catalog.edit();
  const uint32_t file =
      catalog.add_file(plain.catalog->files[0].path, plain.catalog->files[0].bytes);
  for (Entry entry : plain.catalog->entries) {
    if (!entry.name.starts_with("average.")) continue;
    for (Chunk& chunk : entry.chunks) chunk.extent.file = file;
    catalog.entries.push_back(std::move(entry));
  }
  StateDictOptions options;
  options.config_folder = fixture("foreign/model");
  options.is_chosen = [](std::string_view name) { return name.starts_with("average."); };
  const Checkpoint average = read_state_dict(checkpoint, options).model;
  EXPECT_EQ(average.catalog->entries.size(), base_tensors().size());
  options.base_only = true;
  EXPECT_THAT(failure(ErrorKind::invalid, [&] { read_state_dict(checkpoint, options); }),
              HasSubstr("no adapter"));
}

TEST(Adapters, WithoutTheirModelOrTheirTensorsAreSaidToBeSo) {
  Checkpoint alone = open_fixture("adapters/many.pt");
  std::erase_if(alone.catalog.edit().entries,
                [](const Entry& entry) { return entry.name.find("lora_") == std::string::npos; });
  StateDictOptions options;
  options.config_folder = fixture("foreign/model");
  options.base_only = true;
  EXPECT_THAT(failure(ErrorKind::unsupported, [&] { read_state_dict(alone, options); }),
              AllOf(HasSubstr("without its model"), Not(HasSubstr("options.base_only"))));
  Checkpoint wrappers = open_fixture("adapters/dcp");
  std::erase_if(wrappers.catalog.edit().entries,
                [](const Entry& entry) { return entry.name.find("lora_") != std::string::npos; });
  options.base_only = false;
  EXPECT_THAT(failure(ErrorKind::unsupported, [&] { read_state_dict(wrappers, options); }),
              AllOf(HasSubstr("are not here"), HasSubstr("options.base_only")));
  options.base_only = true;
  EXPECT_EQ(contents_of(read_state_dict(wrappers, options).model.catalog), base_tensors());
}

// In Megatron-LM's own checkpoints the optimizer's state moves with its tensor, and references to
// entries by position stay right.
TEST(Adapters, GoWithTheirOptimizerState) {
  Checkpoint checkpoint;
  checkpoint.format = Format::torch_dist;
  checkpoint.catalog = named({{"decoder.layers.mlp.linear_fc1.adapter.linear_in.weight", {4, 2, 8}},
                              {"decoder.layers.mlp.linear_fc1.weight", {4, 16, 8}}});
  auto& entries = checkpoint.catalog.edit().entries;
  for (const uint32_t upper : {0u, 1u}) {
    Entry& entry = entries.emplace_back(entries[upper]);
    entry.name = "optimizer.state.param." + entry.name;
    entry.dtype = DType::f32;
    entry.role = Role::optimizer;
    entry.remainders = {DType::i16, upper};
  }
  checkpoint.catalog.edit().file_system = posix_file_system();
  EXPECT_THAT(resolve_adapter(checkpoint, true, false), HasSubstr("1 tensor)"));
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "decoder.layers.mlp.linear_fc1.weight");
  EXPECT_EQ(entries[1].name, "optimizer.state.param.decoder.layers.mlp.linear_fc1.weight");
  EXPECT_EQ(entries[1].remainders->upper, 0u);
  EXPECT_THAT(resolve_adapter(checkpoint, false, false), IsEmpty());
}

TEST(Adapters, TwoTensorsOfOneNameAreRefused) {
  Checkpoint checkpoint;
  checkpoint.catalog = named({{"h.0.fc.weight", {8, 8}},
                              {"h.0.fc.base_layer.weight", {8, 8}},
                              {"h.0.fc.lora_A.default.weight", {2, 8}}});
  checkpoint.catalog.edit().file_system = posix_file_system();
  EXPECT_THAT(failure(ErrorKind::mismatch, [&] { resolve_adapter(checkpoint, true, false); }),
              HasSubstr("h.0.fc.weight"));
}

}  // namespace
}  // namespace ferry
