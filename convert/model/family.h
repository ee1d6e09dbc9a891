// A model family as data: which Megatron tensor is which Hugging Face tensors, what the family can
// express, and how its config.json spells it. One file in families/ fills one of these; nothing in
// it knows a direction.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/megatron/model/architecture.h"
#include "ckpt/megatron/model/blocks.h"
#include "convert/model/sizes.h"

namespace ferry {

/// How a Megatron tensor and its Hugging Face tensors hold the same elements
/// (convert/model/transforms.h).
enum class Transform : uint8_t {
  copy,
  vocabulary,     // rows: Megatron pads them, Hugging Face has the true number
  qkv,            // rows by query group [q heads, k, v] <-> three tensors; also the bias
  gate_up,        // rows [gate; up] (or alternating blocks) <-> two tensors
  transpose,      // [out, in] <-> [in, out]
  qkv_transpose,  // rows by head [q, k, v] <-> one [in, q; k; v]; of the bias: [q; k; v]
  single,         // one element, whatever the shape in Megatron <-> [1]
  constant,       // only in Hugging Face: filled with Rule::value
};

/// A parameter of the block tables (ckpt/megatron/model/blocks.h), whose shape and presence they
/// give, and what it is in Hugging Face. Patterns hold {layer}, {expert} and {mtp}; a rule stands
/// for all their values. Layer rules under "decoder.layers.{layer}." hold for multi-token
/// prediction layers too, as "mtp.layers.{mtp}.transformer_layer." and as layer L + k of L.
struct Rule {
  std::string_view
      megatron;  // canonical name (convert/model/megatron_model.h); empty for a constant
  std::vector<std::string_view> hugging_face;
  Transform transform = Transform::copy;
  bool copies = false;               // Hugging Face stores the tensor once more; import ignores it
  Condition when = nullptr;          // beyond the parameter's own condition; null: always
  std::vector<AxisSize> shape = {};  // of a constant, in Hugging Face
  bool fp32 = false;                 // of a constant: it stays fp32 whatever the model's dtype
  double value = 0;                  // of a constant
};

/// config.json key <-> member. Values equal to the Megatron side's member in both directions.
struct ConfigField {
  std::string_view key;
  std::variant<int64_t Architecture::*, double Architecture::*, bool Architecture::*> member;
};

/// A member of config.json that no field holds but read_config reads: a whole number within these
/// bounds, or any.
struct ConfigNumber {
  std::string_view key;
  int64_t least = 0;
  int64_t most = kMaxModelSize;
  bool real = false;
  std::string_view with = {};  // means something only where this member is true
};

/// What a family can express; anything else is an objection.
enum class Has : uint8_t { no, yes, either };
struct Traits {
  Norm norm = Norm::rms;
  std::vector<Activation> activations = {Activation::swiglu};
  Positions positions = Positions::rope;
  Has mla = Has::no;
  Has moe = Has::no;           // yes: at least one layer with experts
  Has dense_layers = Has::no;  // in a model with experts
  Has qkv_bias = Has::no;      // without the other biases
  Has linear_bias = Has::no;
  Has qk_norm = Has::no;
  Has tied = Has::either;
  Has window = Has::no;
  Has shared_expert = Has::no;
  Has shared_gate = Has::no;
  Has expert_bias = Has::no;
  Has mtp = Has::no;
  Has grouped_queries = Has::either;
  std::vector<RouterScore> scores = {RouterScore::softmax};
};

struct Family {
  std::string name;        // as in --family and model_type
  std::string class_name;  // of transformers
  Traits traits;
  std::vector<Rule> rules;
  std::vector<ConfigField> fields;
  std::vector<ConfigNumber> numbers;
  /// What the fields cannot say; adds to warnings what Hugging Face has no counterpart of.
  void (*write_config)(const Architecture&, nlohmann::json& config,
                       std::vector<std::string>& warnings) = nullptr;
  /// The way back: what the fields cannot say, read from a config.json that holds `defaults` where
  /// it was silent. Puts what it may say in several ways into write_config's words.
  void (*read_config)(nlohmann::json& config, Architecture&) = nullptr;
  /// What the two sides compute otherwise, whatever the direction, one sentence each; may be null.
  void (*differences)(const Architecture&, std::vector<std::string>& warnings) = nullptr;
  /// Sees what only the file's tensors tell; `has` knows the names of the rules.
  void (*look)(const std::function<bool(const std::string&)>& has, Architecture&) = nullptr;
  /// What a config.json means where it is silent, as transformers' class has it: a JSON object.
  std::string_view defaults = "{}";
  /// The outermost module, which names lack in files that a bare model without head wrote.
  std::string_view base_prefix = "model.";
  /// Modules that files may spell otherwise than the rules: {rule's, other}.
  std::vector<std::pair<std::string_view, std::string_view>> spellings;
  /// Ends of names of buffers that older files hold and no model reads.
  std::vector<std::string_view> buffers = {".rotary_emb.inv_freq"};
  /// Reasons beyond the traits why a model is not of this family; may be null.
  void (*objections)(const Architecture&, std::vector<std::string>& reasons) = nullptr;
};

/// All families, the more special first: recognition takes the first without objections.
const std::vector<Family>& families();
const Family* find_family(std::string_view name);

/// Why a model is not of this family, one sentence each; empty when it is.
std::vector<std::string> objections(const Family& family, const Architecture& architecture);

/// One application of a rule.
struct Link {
  const Rule* rule = nullptr;
  std::string megatron;  // canonical; empty for a constant
  std::vector<std::string> hugging_face;
  Dims shape;         // canonical
  bool fp32 = false;  // whatever the model's dtype
};

/// All links of a model, in the order of the network.
std::vector<Link> expand(const Family& family, const Architecture& architecture);

}  // namespace ferry
