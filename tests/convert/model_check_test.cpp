// A Hugging Face folder held against its config.json: names that programs wrapped, and tensors that
// are missing, left over or of another shape or type.
#include "convert/check/model_check.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <regex>
#include <set>

#include "convert/check/names.h"
#include "tests/convert/models.h"

namespace ferry::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> problems(File& file) {
  Checkpoint checkpoint = file.open();
  unwrap_names(checkpoint);
  return check_model(checkpoint).problems;
}

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const Entry& entry : checkpoint.catalog->entries) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  return names;
}

void put_before_all(File& file, const std::string& prefix) {
  std::map<std::string, Bytes> wrapped;
  for (const auto& [name, tensor] : file.tensors) wrapped[prefix + name] = tensor;
  file.tensors = std::move(wrapped);
}

// The same model as one of a type that is not known.
void make_unknown(File& file) {
  file.config["model_type"] = "unheard_of";
  file.config["architectures"] = {"UnheardOfForCausalLM"};
}

TEST(ModelCheck, FindsNothingInModelsOfAnyFamily) {
  for (const std::string& name : model_names()) {
    File file(name);
    EXPECT_THAT(problems(file), IsEmpty()) << name;
    make_unknown(file);
    EXPECT_THAT(problems(file), IsEmpty()) << name;
  }
}

// As safetensors' save_model() leaves it, which keeps one name of a tensor that has two.
TEST(ModelCheck, ATiedEmbeddingMayHaveTheOutputLayersName) {
  int tied = 0;
  for (const std::string& name : model_names()) {
    File file(name);
    const std::string embedding = "model.embed_tokens.weight", head = "lm_head.weight";
    if (!file.tensors.contains(embedding) || !file.config.value("tie_word_embeddings", false)) {
      continue;
    }
    file.tensors[head] = file.tensors.at(embedding);
    file.tensors.erase(embedding);
    EXPECT_THAT(problems(file), IsEmpty()) << name;
    ++tied;
  }
  EXPECT_GT(tied, 0);
}

// The first and the last layer and expert stand for all that have such a tensor.
std::set<std::string> tensors_to_miss(const std::map<std::string, Bytes>& tensors) {
  const std::regex number("\\.[0-9]+\\.");
  std::map<std::string, std::pair<std::string, std::string>> ends;
  for (const auto& [name, bytes] : tensors) {
    auto& [first, last] = ends[std::regex_replace(name, number, ".N.")];
    if (first.empty()) first = name;
    last = name;
  }
  std::set<std::string> names;
  for (const auto& [kind, of_kind] : ends) names.insert({of_kind.first, of_kind.second});
  return names;
}

TEST(ModelCheck, NamesEveryTensorThatIsMissing) {
  for (const std::string& name : model_names()) {
    File file(name);
    const auto whole = file.tensors;
    for (const std::string& tensor : tensors_to_miss(whole)) {
      file.tensors = whole;
      file.tensors.erase(tensor);
      const bool is_constant = tensor.ends_with(".act_fn.beta") || tensor.ends_with(".act_fn.eps");
      const bool is_copy =
          tensor.ends_with("shared_head.head.weight") ||
          (tensor.find(".layers.") != tensor.npos && tensor.ends_with("embed_tokens.weight"));
      if (is_constant || is_copy) continue;
      EXPECT_THAT(problems(file), Contains(HasSubstr(tensor))) << name;
    }
  }
}

TEST(ModelCheck, NamesWhatIsLeftOverAndMisshapen) {
  File file("qwen3");
  file.tensors["model.layers.0.self_attn.extra.weight"] = file.tensors.begin()->second;
  file.tensors["model.norm.weight"].shape = {file.tensors["model.norm.weight"].shape[0] / 2, 2};
  EXPECT_THAT(problems(file),
              ElementsAre(AllOf(
                  HasSubstr("left over (1)"), HasSubstr("model.layers.0.self_attn.extra.weight"),
                  HasSubstr("of another shape (1)"), HasSubstr("model.norm.weight: has ["))));
}

TEST(ModelCheck, TakesWrappersOffNames) {
  for (const std::string family : {"qwen3", "gpt2", "deepseek_v3"}) {
    File file(family);
    const std::vector<std::string> own = names_of(file.open());
    const auto whole = file.tensors;
    for (const std::string prefix :
         {"_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.",
          "_fsdp_wrapped_module.", "language_model.", "policy.module."}) {
      file.tensors = whole;
      put_before_all(file, prefix);
      Checkpoint checkpoint = file.open();
      EXPECT_THAT(unwrap_names(checkpoint), HasSubstr("'" + prefix + "'")) << family;
      EXPECT_EQ(names_of(checkpoint), own) << family << prefix;
      EXPECT_THAT(check_model(checkpoint).problems, IsEmpty()) << family << prefix;
      EXPECT_GT(import_model(checkpoint, {}).parameters, 0);
    }
  }
}

TEST(ModelCheck, TakesWrappersOutOfTheMiddleOfNames) {
  File file("qwen3");
  const std::vector<std::string> own = names_of(file.open());
  file.rename(".self_attn.", "._checkpoint_wrapped_module.self_attn._orig_mod.");
  Checkpoint checkpoint = file.open();
  EXPECT_NE(unwrap_names(checkpoint), "");
  EXPECT_EQ(names_of(checkpoint), own);
}

TEST(ModelCheck, TakesWrappersOffNamesOfUnknownModels) {
  File file("qwen3");
  make_unknown(file);
  const std::vector<std::string> own = names_of(file.open());
  const auto whole = file.tensors;
  for (const std::string prefix : {"_orig_mod.", "module.", "module._orig_mod."}) {
    file.tensors = whole;
    put_before_all(file, prefix);
    Checkpoint checkpoint = file.open();
    EXPECT_NE(unwrap_names(checkpoint), "");
    EXPECT_EQ(names_of(checkpoint), own) << prefix;
  }
  file.tensors = whole;
  file.rename("model.", "model.language_model.language_model.");
  Checkpoint checkpoint = file.open();
  EXPECT_NE(unwrap_names(checkpoint), "");
  EXPECT_EQ(names_of(checkpoint), own);
}

TEST(ModelCheck, LeavesNamesAlone) {
  for (const std::string& name : model_names()) {
    File file(name);
    Checkpoint checkpoint = file.open();
    EXPECT_EQ(unwrap_names(checkpoint), "") << name;
  }
  File file("qwen3");  // a vision model's own modules
  make_unknown(file);
  file.config["text_config"] = {{"hidden_size", 64}};
  file.rename("model.", "model.language_model.");
  file.tensors["model.vision_tower.vision_tower.patch.weight"] = file.tensors.begin()->second;
  Checkpoint checkpoint = file.open();
  EXPECT_EQ(unwrap_names(checkpoint), "");
}

TEST(ModelCheck, RefusesTwoTensorsOfOneName) {
  File file("qwen3");
  file.tensors["_orig_mod.model.norm.weight"] = file.tensors["model.norm.weight"];
  Checkpoint checkpoint = file.open();
  EXPECT_THROW(unwrap_names(checkpoint), Error);
}

TEST(ModelCheck, NeedsNoOutputLayerInModelsWithoutOne) {
  File file("qwen3");
  file.config["architectures"] = {"Qwen3ForSequenceClassification"};
  file.config["tie_word_embeddings"] = false;
  file.tensors.erase("lm_head.weight");
  file.tensors["score.weight"] = file.tensors["model.norm.weight"];
  EXPECT_THAT(problems(file), IsEmpty());
}

TEST(ModelCheck, ComparesUnknownModelsWithTheirConfig) {
  File file("qwen3_moe");
  make_unknown(file);
  file.config["tie_word_embeddings"] = false;
  ASSERT_THAT(problems(file), IsEmpty());
  const auto whole = file.tensors;
  const nlohmann::json config = file.config;
  const auto with = [&](const char* member, int64_t value) {
    file.tensors = whole;
    file.config = config;
    file.config[member] = value;
    return problems(file);
  };
  EXPECT_THAT(with("num_hidden_layers", 40), Contains(HasSubstr("config.json has 40")));
  EXPECT_THAT(with("num_experts", 16), Contains(HasSubstr("of 16 experts are there")));
  EXPECT_THAT(with("num_experts", 2), Contains(HasSubstr("config.json has 2")));
  EXPECT_THAT(with("hidden_size", 48), Contains(HasSubstr("model.embed_tokens.weight")));
  EXPECT_THAT(with("vocab_size", 5000), Contains(HasSubstr("model.embed_tokens.weight")));
  EXPECT_THAT(with("vocab_size", 48), IsEmpty());
  EXPECT_THAT(check_model(file.open()).warnings,
              Contains(HasSubstr("config.json's vocab_size is 48")));
  const auto without = [&](const std::string& part) {
    file.tensors = whole;
    file.config = config;
    std::erase_if(file.tensors,
                  [&](auto& each) { return each.first.find(part) != std::string::npos; });
    return problems(file);
  };
  EXPECT_THAT(without("lm_head.weight"), Contains(HasSubstr("the output layer is missing")));
  EXPECT_THAT(without("layers.0."), Contains(HasSubstr("missing: 0")));
  EXPECT_THAT(without("layers.0.mlp.experts.2.up_proj"),
              Contains(HasSubstr("model.layers.0.mlp.experts.*.up_proj.weight: 3 of 4 experts")));
}

// Layers up to `layers`, each with the tensors of the layer `of`.
void deepen(File& file, int64_t of, int64_t layers) {
  const auto layer = [](int64_t number) { return fmt::format("layers.{}.", number); };
  for (int64_t i = file.config["num_hidden_layers"]; i < layers; ++i) {
    for (const auto& [name, tensor] : std::map(file.tensors)) {
      if (name.find(layer(of)) == name.npos) continue;
      file.tensors[replaced(name, layer(of), layer(i))] = tensor;
    }
  }
  file.config["num_hidden_layers"] = layers;
}

TEST(ModelCheck, ComparesLayersOfUnknownModels) {
  File file("qwen3");
  deepen(file, 1, 4);
  make_unknown(file);
  ASSERT_THAT(problems(file), IsEmpty());
  const auto whole = file.tensors;
  const std::string norm = "model.layers.2.input_layernorm.weight";
  file.tensors.erase(norm);
  EXPECT_THAT(problems(file), ElementsAre(HasSubstr(norm + " is missing")));
  file.tensors = whole;
  file.tensors[norm].shape = {1, whole.at(norm).shape[0]};
  EXPECT_THAT(problems(file), ElementsAre(HasSubstr(norm + ": has shape [1,")));
  file.tensors = whole;
  file.tensors[norm].dtype = DType::i32;
  EXPECT_THAT(problems(file), IsEmpty());  // not a float: quantised, perhaps
  file.tensors[norm].dtype = DType::bf16;
  file.tensors[norm].data.resize(whole.at(norm).data.size() / 2);
  EXPECT_THAT(problems(file), IsEmpty());
  EXPECT_THAT(check_model(file.open()).warnings, ElementsAre(HasSubstr(norm + ": is bfloat16")));
}

// A dense layer before three with experts has no other of its kind, but the same attention.
TEST(ModelCheck, ComparesPartsOfLayersWithFewOfTheirKind) {
  File file("deepseek_v2");
  ASSERT_FALSE(file.tensors.contains("model.layers.0.mlp.gate.weight"));
  ASSERT_TRUE(file.tensors.contains("model.layers.1.mlp.gate.weight"));
  deepen(file, 1, 5);
  make_unknown(file);
  const auto warnings_without = [&](const std::string& part) {
    File less = file;
    std::erase_if(less.tensors, [&](const auto& each) { return each.first.starts_with(part); });
    EXPECT_THAT(problems(less), IsEmpty()) << part;
    return check_model(less.open()).warnings;
  };
  EXPECT_THAT(warnings_without("no such tensor"), IsEmpty());
  for (const std::string name : {"model.layers.0.self_attn.o_proj.weight",
                                 "model.layers.0.post_attention_layernorm.weight"}) {
    EXPECT_THAT(warnings_without(name), ElementsAre(HasSubstr(name + " is missing"))) << name;
  }
  EXPECT_THAT(warnings_without("model.layers.0.self_attn."),
              Contains(HasSubstr("model.layers.0.self_attn.o_proj.weight is missing")));
  // A type of its own may be why a layer lacks something.
  file.config["layer_types"] = {"dense", "a", "a", "a", "a"};
  EXPECT_THAT(warnings_without("model.layers.0.self_attn.o_proj.weight"), IsEmpty());
}

TEST(ModelCheck, FindsLayersThatLostAllExperts) {
  for (const std::string name : {"deepseek_v2", "qwen3_moe"}) {  // with shared experts and without
    File file(name);
    deepen(file, 1, 5);
    make_unknown(file);
    std::erase_if(file.tensors, [](const auto& each) {
      return each.first.starts_with("model.layers.3.mlp.experts.");
    });
    const auto [problems, warnings] = check_model(file.open());
    std::vector<std::string> all = problems;
    all.insert(all.end(), warnings.begin(), warnings.end());
    EXPECT_THAT(all, Contains(HasSubstr("layers.3.mlp.experts.*.up_proj.weight is missing")))
        << name;
  }
}

TEST(ModelCheck, ComparesLayersOfAllPartsOfUnknownModels) {
  File file("qwen3");
  deepen(file, 1, 4);
  make_unknown(file);
  for (int64_t i = 0; i < 4; ++i) {
    for (const std::string part : {"norm.weight", "mlp.0.weight", "mlp.2.weight"}) {
      file.tensors[fmt::format("vision.blocks.{}.{}", i, part)] = file.tensors["model.norm.weight"];
    }
  }
  ASSERT_THAT(problems(file), IsEmpty());
  file.tensors.erase("vision.blocks.2.mlp.2.weight");
  EXPECT_THAT(problems(file), ElementsAre(HasSubstr("vision.blocks.2.mlp.2.weight is missing")));
}

TEST(ModelCheck, SaysThatTheNormAfterTheLayersIsMissing) {
  int checked = 0;
  for (const std::string& name : model_names()) {
    File file(name);
    make_unknown(file);
    EXPECT_THAT(check_model(file.open()).warnings, IsEmpty()) << name;
    for (const std::string norm : {"model.norm", "model.language_model.norm", "backbone.norm_f",
                                   "transformer.ln_f", "model.final_layernorm"}) {
      const std::string weight = norm + ".weight", bias = norm + ".bias";
      if (!file.tensors.contains(weight)) continue;
      ++checked;
      const Bytes kept = file.tensors[weight];
      const bool has_bias = file.tensors.contains(bias);
      file.tensors.erase(weight);
      if (has_bias) {
        EXPECT_THAT(problems(file), ElementsAre(HasSubstr(weight + " is missing"))) << name;
        file.tensors[weight] = kept;
        file.tensors.erase(bias);
        EXPECT_THAT(check_model(file.open()).warnings,
                    ElementsAre(HasSubstr(bias + " is missing")));
        file.tensors.erase(weight);
      }
      EXPECT_THAT(problems(file), IsEmpty()) << name;
      EXPECT_THAT(check_model(file.open()).warnings,
                  ElementsAre(HasSubstr("the norm after the layers is missing")))
          << name;
    }
  }
  EXPECT_EQ(checked, static_cast<int>(model_names().size()));
}

TEST(ModelCheck, TakesTheOutputLayerForTheEmbeddingWhereNobodySaysThatItIsNot) {
  File file("qwen3");
  make_unknown(file);
  file.tensors["lm_head.weight"] = file.tensors["model.embed_tokens.weight"];
  file.tensors.erase("model.embed_tokens.weight");
  const auto warnings = [&] { return check_model(file.open()).warnings; };
  file.config["tie_word_embeddings"] = true;
  EXPECT_THAT(warnings(), IsEmpty());
  file.config.erase("tie_word_embeddings");
  EXPECT_THAT(problems(file), IsEmpty());
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("the embedding is missing, unless lm_head")));
  file.config["tie_word_embeddings"] = false;
  EXPECT_THAT(problems(file), ElementsAre(HasSubstr("the embedding is missing")));
}

// transformers drops MTP layers when it saves a model, but not their number.
TEST(ModelCheck, SaysThatMtpLayersHaveNoTensors) {
  const auto warnings = [](File& file) { return check_model(file.open()).warnings; };
  for (const std::string member : {"num_nextn_predict_layers", "mtp_num_hidden_layers"}) {
    for (const bool nested : {false, true}) {
      File file("qwen3_moe");
      make_unknown(file);
      const int64_t layers = file.config["num_hidden_layers"];
      EXPECT_THAT(warnings(file), IsEmpty());
      if (nested) {
        file.config = {{"model_type", "unheard_of"}, {"text_config", file.config}};
        file.config["text_config"][member] = 1;
      } else {
        file.config[member] = 1;
      }
      EXPECT_THAT(warnings(file),
                  ElementsAre(HasSubstr("counts 1 MTP layer (" + member + "), but")));
      EXPECT_THAT(problems(file), IsEmpty());
      for (const std::string& name :
           {fmt::format("model.layers.{}.eh_proj.weight", layers), std::string("mtp.fc.weight"),
            std::string("model.mtp_layers.0.norm.weight")}) {
        const auto whole = file.tensors;
        file.tensors[name] = file.tensors["model.norm.weight"];
        EXPECT_THAT(warnings(file), IsEmpty()) << name;
        file.tensors = whole;
      }
    }
  }
  File known("deepseek_v3", {{"mtp_num_layers", 1}});
  ASSERT_GT(known.config["num_nextn_predict_layers"], 0);
  EXPECT_THAT(warnings(known), IsEmpty());
  const std::string mtp = fmt::format("model.layers.{}.", known.config["num_hidden_layers"].dump());
  std::erase_if(known.tensors, [&](const auto& each) { return each.first.starts_with(mtp); });
  EXPECT_THAT(problems(known), IsEmpty());
  EXPECT_THAT(warnings(known), ElementsAre(HasSubstr("no tensor is of one")));
}

// PEFT's modules_to_save: a trained copy of the output layer, with the module's own or without.
TEST(ModelCheck, FindsTheOutputLayerThatAnAdapterTrained) {
  for (const bool with_own : {true, false}) {
    File file("qwen3");
    file.config["architectures"] = {"Qwen3ForSequenceClassification"};
    const Bytes head = file.tensors.at("model.norm.weight");
    file.tensors.erase("lm_head.weight");
    if (with_own) file.tensors["score.original_module.weight"] = head;
    file.tensors["score.modules_to_save.default.weight"] = head;
    const std::string layer = "model.layers.0.self_attn.q_proj.";
    file.tensors[layer + "base_layer.weight"] = file.tensors.at(layer + "weight");
    file.tensors.erase(layer + "weight");
    for (const std::string factor : {"lora_A", "lora_B"}) {
      file.tensors[layer + factor + ".default.weight"] = file.tensors[layer + "base_layer.weight"];
    }
    put_before_all(file, "base_model.model.");
    EXPECT_THAT(problems(file), IsEmpty()) << with_own;
    file.tensors.erase("base_model.model.score.modules_to_save.default.weight");
    EXPECT_EQ(problems(file).empty(), with_own);
  }
}

// As DeepSpeed's ZeRO stage 3 leaves them, whatever the model's type.
TEST(ModelCheck, FindsWeightsWithoutElements) {
  for (const bool known : {true, false}) {
    File file("qwen3");
    if (!known) make_unknown(file);
    for (auto& [name, tensor] : file.tensors) {
      if (tensor.shape.size() == 2) tensor = {{0}, tensor.dtype, ""};
    }
    EXPECT_THAT(problems(file), Contains(HasSubstr("weights have no elements: "))) << known;
  }
}

}  // namespace
}  // namespace ferry::test
