// Source: transformers 5.23, models/auto/modeling_auto.py (MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) and
// the configuration classes. tests/interop/checkpoints/check_types.py compares the logits of all.
#include "convert/model/types.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>

namespace ferry {
namespace {

constexpr SameType kSame[] = {
    {"gemma4_unified_text", "gemma4_text",
     R"({"hidden_size_per_layer_input": 0, "sliding_window": 1024})"},
    {"gpt-sw3", "gpt2"},
    {"internlm3", "llama", R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 2, "head_dim": 128})"},
    {"iquestcoder", "llama",
     R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "head_dim": 128})"},
    {"ministral", "mistral"},
    {"youtu", "deepseek_v3",
     R"({"first_k_dense_replace": 1000000, "n_routed_experts": 0,
         "tie_word_embeddings": true})"},
};

// All other types that transformers has, those of families that are not recognised by their
// tensors included; in the order of std::string_view.
constexpr std::string_view kOthers[] = {"afmoe",
                                        "arcee",
                                        "aria_text",
                                        "axk1",
                                        "axk2",
                                        "bailing_hybrid",
                                        "bamba",
                                        "bart",
                                        "beam",
                                        "bert",
                                        "bert-generation",
                                        "big_bird",
                                        "bigbird_pegasus",
                                        "biogpt",
                                        "bitnet",
                                        "blenderbot",
                                        "blenderbot-small",
                                        "bloom",
                                        "blt",
                                        "camembert",
                                        "codegen",
                                        "cohere",
                                        "cohere2",
                                        "cohere2_moe",
                                        "cohere_compass_text",
                                        "cpmant",
                                        "ctrl",
                                        "cwm",
                                        "data2vec-text",
                                        "dbrx",
                                        "deepseek_v32",
                                        "deepseek_v4",
                                        "diffllama",
                                        "doge",
                                        "dots1",
                                        "dots3_note",
                                        "dots3_note_text",
                                        "electra",
                                        "emu3",
                                        "ernie",
                                        "ernie4_5",
                                        "ernie4_5_moe",
                                        "exaone4",
                                        "exaone_moe",
                                        "falcon",
                                        "falcon_h1",
                                        "falcon_mamba",
                                        "flex_olmo",
                                        "flint",
                                        "fuyu",
                                        "gemma",
                                        "gemma2",
                                        "gemma3",
                                        "gemma3_text",
                                        "gemma3n",
                                        "gemma3n_text",
                                        "gemma4",
                                        "gemma4_assistant",
                                        "gemma4_text",
                                        "gemma4_unified",
                                        "gemma4_unified_assistant",
                                        "git",
                                        "glm",
                                        "glm4",
                                        "glm4_moe_lite",
                                        "glm_moe_dsa",
                                        "got_ocr2",
                                        "gpt_bigcode",
                                        "gpt_neo",
                                        "gpt_neox",
                                        "gpt_neox_japanese",
                                        "gpt_oss",
                                        "gptj",
                                        "granite",
                                        "granite_swa",
                                        "granitemoe",
                                        "granitemoe_swa",
                                        "granitemoehybrid",
                                        "granitemoeshared",
                                        "helium",
                                        "hrm_text",
                                        "hunyuan_v1_dense",
                                        "hunyuan_v1_moe",
                                        "hy_v3",
                                        "hy_v4",
                                        "hyperclovax",
                                        "inkling2_text",
                                        "inkling_text",
                                        "jais2",
                                        "jamba",
                                        "jetmoe",
                                        "kimi_linear",
                                        "kolibri1",
                                        "laguna",
                                        "lfm2",
                                        "lfm2_moe",
                                        "lfm3",
                                        "llama4",
                                        "llama4_text",
                                        "longcat_flash",
                                        "mamba",
                                        "mamba2",
                                        "marian",
                                        "mbart",
                                        "megatron-bert",
                                        "mellum",
                                        "mimo_v2_flash",
                                        "minicpm3",
                                        "minimax",
                                        "minimax_m2",
                                        "minimax_m3_vl_text",
                                        "ministral3",
                                        "mllama",
                                        "modernbert-decoder",
                                        "moshi",
                                        "moss_transcribe_diarize",
                                        "mpt",
                                        "musicgen",
                                        "musicgen_melody",
                                        "mvp",
                                        "nanochat",
                                        "nemotron",
                                        "nemotron_h",
                                        "olmo",
                                        "olmo2",
                                        "olmo3",
                                        "olmo_hybrid",
                                        "olmoe",
                                        "openai-gpt",
                                        "opt",
                                        "pegasus",
                                        "persimmon",
                                        "phi",
                                        "phi3",
                                        "phi4_multimodal",
                                        "phimoe",
                                        "plbart",
                                        "prophetnet",
                                        "qwen3_5",
                                        "qwen3_5_moe",
                                        "qwen3_5_moe_text",
                                        "qwen3_5_text",
                                        "qwen3_next",
                                        "qwen4_exp",
                                        "qwen4_exp_text",
                                        "recurrent_gemma",
                                        "reformer",
                                        "rembert",
                                        "roberta",
                                        "roberta-prelayernorm",
                                        "roc_bert",
                                        "roformer",
                                        "rwkv",
                                        "solar_open",
                                        "stablelm",
                                        "starcoder2",
                                        "trocr",
                                        "vaultgemma",
                                        "whisper",
                                        "xglm",
                                        "xlm",
                                        "xlm-roberta",
                                        "xlm-roberta-xl",
                                        "xlnet",
                                        "xlstm",
                                        "xmod",
                                        "zamba",
                                        "zamba2",
                                        "zaya"};

// Why Megatron-LM cannot compute what they do. Types of models that bring their own code, too.
struct Reason {
  std::string_view name, words;
};
constexpr std::string_view kDeltaAttention =
    "some of its layers have Kimi's delta attention, which Megatron-LM has not";
constexpr std::string_view kScaledQueries =
    "its queries are scaled by their position, which Megatron-LM has no argument for";
constexpr std::string_view kNormedLater =
    "its queries and keys are normed after their positions, in Megatron-LM before them";
constexpr std::string_view kFactors =
    "it multiplies what attention and MLP give by a factor of its own (residual_multiplier), which "
    "Megatron-LM has no argument for";
constexpr Reason kReasons[] = {
    {"bailing_hybrid", kDeltaAttention},
    {"deepseek_v4",
     "its attention compresses keys and values of several tokens into one and its layers exchange "
     "several residual streams, which Megatron-LM's main branch has not"},
    {"deepseek_v41",
     "its attention compresses keys and values of several tokens into one and its layers exchange "
     "several residual streams, which Megatron-LM's main branch has not"},
    {"ernie4_5_moe",
     "its router has a bias and a softmax, which Megatron-LM does not have together; Megatron "
     "Bridge's model of it has a sigmoid, and gives other logits"},
    {"glm5_next", kDeltaAttention},
    {"glm5_next_text", kDeltaAttention},
    {"granite", kFactors},
    {"granite_swa", kFactors},
    {"granitemoe", kFactors},
    {"granitemoe_swa", kFactors},
    {"granitemoehybrid", kFactors},
    {"granitemoeshared", kFactors},
    {"hunyuan_v1_dense", kNormedLater},
    {"hunyuan_v1_moe", kNormedLater},
    {"hy_v4", "its layers exchange several residual streams, which Megatron-LM has not"},
    {"kimi_k3", kDeltaAttention},
    {"kimi_linear", kDeltaAttention},
    {"llama4_text",
     "its attention is cut into chunks and its queries are scaled by their position, which "
     "Megatron-LM has no arguments for, nor has mcore-bridge's model of it either"},
    {"mimo_v2_flash",
     "its heads have more elements for keys than for values, which Megatron-LM has not"},
    {"mistral4", kScaledQueries},
    {"mistral_large4", "layers take keys and values of other ones, which Megatron-LM has not"},
    {"step3p5", "its number of heads differs by layer, which Megatron-LM has not"},
    {"step3p7", "its number of heads differs by layer, which Megatron-LM has not"},
};

// Letters and digits, in lower case.
std::string bare(std::string_view name) {
  std::string result;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) result += static_cast<char>(std::tolower(byte));
  }
  return result;
}

}  // namespace

const SameType* same_type(std::string_view name) {
  const SameType* found = std::find_if(std::begin(kSame), std::end(kSame),
                                       [&](const SameType& each) { return each.name == name; });
  return found != std::end(kSame) ? found : nullptr;
}

bool computes_otherwise(std::string_view name) {
  static_assert(std::ranges::is_sorted(kOthers));
  return std::ranges::binary_search(kOthers, name) || !why_not_in_megatron(name).empty();
}

std::string_view why_not_in_megatron(std::string_view name) {
  const auto* const found = std::ranges::find(kReasons, name, &Reason::name);
  return found != std::end(kReasons) ? found->words : std::string_view();
}

std::string_view type_of_class(std::string_view class_name) {
  constexpr std::string_view kEnds[] = {"ForCausalLM", "ForConditionalGeneration", "LMHeadModel",
                                        "Model"};
  const auto* end = std::ranges::find_if(
      kEnds, [&](std::string_view each) { return class_name.ends_with(each); });
  if (end == std::end(kEnds)) return {};
  const std::string requested = bare(class_name.substr(0, class_name.size() - end->size()));
  for (const SameType& each : kSame) {
    if (bare(each.name) == requested) return each.name;
  }
  for (const std::string_view each : kOthers) {
    if (bare(each) == requested) return each;
  }
  return {};
}

}  // namespace ferry
