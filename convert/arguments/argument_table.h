// Megatron's arguments and the members of an Architecture that they are, for both directions.
//
// Source: Megatron-LM megatron/training/arguments.py (spellings, defaults), checkpointing.py
// (load_args_from_checkpoint: what --use-checkpoint-args takes from a checkpoint), rope constants:
// core/models/common/embeddings/rotary_pos_embedding.py, core/transformer/transformer_config.py.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "ckpt/megatron/model/architecture.h"

namespace ferry {

/// Which models have an argument.
enum class ArgumentOf : uint8_t {
  all,
  latent,
  linear,
  hybrid,
  indexers,
  attention_kinds,
  dense_kinds,
  mixture_kinds,
  experts
};

/// How a number is written.
enum class ArgumentForm : uint8_t {
  plain,
  whole,         // an integer where the number is one
  none_at_zero,  // zero stands for nothing
};

/// An argument that is a member as it is. None leaves the default, which is Megatron's own.
struct Argument {
  std::string_view name;
  std::variant<int64_t Architecture::*, double Architecture::*, bool Architecture::*> member;
  ArgumentOf of = ArgumentOf::all;
  ArgumentForm form = ArgumentForm::plain;
  std::string_view flag = "";  // of the command line, where --use-checkpoint-args does not take it
};

/// Later rows win: today's spelling comes after older and TransformerConfig's ones, which are
/// written too, for the releases that read them.
std::span<const Argument> plain_arguments();

bool has_argument(ArgumentOf of, const Architecture& architecture);

/// The function of an MLP that none of Megatron-LM's flags is, and what it is in Gemma.
inline constexpr std::string_view kActivationFunction = "activation_func",
                                  kTanhGelu = "megatron.core.activations.fast_gelu";

/// A choice that is one flag of several, or none of them.
struct ActivationFlag {
  std::string_view name;
  Activation activation;
  std::string_view flag = "";
};
std::span<const ActivationFlag> activation_flags();  // the first that is true decides

/// A choice that is a word.
template <typename T>
struct Word {
  std::string_view word;
  T value;
};
std::span<const Word<Norm>> norm_words();           // normalization
std::span<const Word<Positions>> position_words();  // position_embedding_type
std::span<const Word<RouterScore>> score_words();   // moe_router_score_function
template <typename T>
T value_of(std::span<const Word<T>> words, std::string_view word, T otherwise) {
  for (const Word<T>& each : words) {
    if (each.word == word) return each.value;
  }
  return otherwise;
}
/// Empty when the value has no word.
template <typename T>
std::string_view word_of(std::span<const Word<T>> words, T value) {
  for (const Word<T>& each : words) {
    if (each.value == value) return each.word;
  }
  return "";
}

// What Megatron-LM has fixed and NeMo keeps in its configuration.
struct Llama3Constants {
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_positions = 8192;
};
struct YarnConstants {
  double beta_fast = 32, beta_slow = 1;
  int64_t original_positions = 4096;
};

}  // namespace ferry
