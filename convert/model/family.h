// A model family as data: which Megatron tensor is which Hugging Face tensors, and what its
// config.json says. One file in families/ fills one of these; nothing in it knows a direction. What
// a family can express follows from its rows (convert/config/expressible.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/megatron/model/architecture.h"
#include "ckpt/megatron/model/blocks.h"
#include "convert/config/config_row.h"

namespace ferry {

/// How a Megatron tensor and its Hugging Face tensors hold the same elements
/// (convert/model/transforms.h).
enum class Transform : uint8_t {
  copy,
  vocabulary,   // rows: Megatron pads them, Hugging Face has the true number
  qkv,          // rows by query group [q heads, k, v] <-> three tensors; also the bias. With an
                // output gate [q heads, gates, k, v], and q by head [q, gate]
  gate_up,      // rows [gate; up] (or alternating blocks) <-> two tensors
  swap_halves,  // columns: the second half comes first
  gate_up_transpose,  // the same <-> one [in, gate; up]
  gate_up_columns,    // the same <-> one [in, 2 x ffn], gate and up in turn; of the bias: [2 x ffn]
  transpose,          // [out, in] <-> [in, out]
  qkv_transpose,      // rows by head [q, k, v] <-> one [in, q; k; v]; of the bias: [q; k; v]
  delta_net,  // rows [q; k; v; z; beta; alpha] of a gated delta net <-> [q; k; v], z, beta, alpha
  delta_net_by_head,  // the same <-> by key head [q, k, v, z] and by key head [beta, alpha]
  queries,            // qkv of a layer that takes keys and values of another: its queries alone
  unused,             // only in Megatron, which ignores it
  single,             // one element, whatever the shape in Megatron <-> [1]
  constant,           // only in Hugging Face: filled with Rule::value
};

/// A parameter of the block tables (ckpt/megatron/model/blocks.h), whose shape and presence they
/// give, and what it is in Hugging Face. Patterns hold {layer}, {expert} and {mtp}; a rule stands
/// for all their values. Layer rules under "decoder.layers.{layer}." hold for multi-token
/// prediction layers too, as "mtp.layers.{mtp}.transformer_layer." and as layer L + k of L.
struct Rule {
  std::string_view
      megatron;  // canonical name (convert/model/megatron_model.h); empty for a constant
  /// One name, for qkv and gate_up, is of a tensor that holds all of them, one after another. Names
  /// without {expert}, where `megatron` has it, are of tensors that hold all experts along a first
  /// axis of their own. A name that stands again is of the same tensor, and export takes the first.
  std::vector<std::string_view> hugging_face;
  Transform transform = Transform::copy;
  bool plain_norm = false;           // whole in Hugging Face, whatever Family::zero_centered_norms
  bool copies = false;               // Hugging Face stores the tensor once more; import ignores it
  Condition when = nullptr;          // beyond the parameter's own condition; null: always
  std::vector<AxisSize> shape = {};  // of a constant, in Hugging Face
  bool fp32 = false;                 // of a constant: it stays fp32 whatever the model's dtype
  double value = 0;                  // of a constant
};

/// The output layer's tensor in every family of transformers'.
inline constexpr std::string_view kOutputLayerName = "lm_head.weight";

/// How torchtitan's model of the same shapes holds queries and keys.
enum class TitanPairs : uint8_t {
  no_model,  // it has none
  halves,    // as transformers: the first halves of all rotated pairs, then the second ones
  adjacent,  // the two halves of a pair side by side
};

struct Family {
  std::string name;        // as in --family and model_type
  std::string class_name;  // of transformers
  std::vector<Rule> rules = {};
  std::vector<ConfigRow> config = {};  // read in this order
  /// What a config.json means where it is silent, as transformers' class has it: a JSON object.
  std::string_view defaults = "{}";
  /// What the two sides compute otherwise, whatever the direction, one sentence each; may be null.
  void (*differences)(const Architecture&, std::vector<std::string>& warnings) = nullptr;
  /// Numbers of layers at which the class expects MTP layers, and ignores them; at others
  /// transformers calls their tensors unexpected. Empty: it never expects any.
  std::vector<int64_t> expected_mtp_layers = {};
  /// Norms are stored less 1: the class adds that.
  bool zero_centered_norms = false;
  /// What stands for "model.layers.{layer}." in names of MTP layers; empty: that itself.
  std::string_view mtp_prefix = {};
  /// The outermost module, which names lack in files that a bare model without head wrote.
  std::string_view base_prefix = "model.";
  /// Modules that files may spell otherwise than the rules: {rule's, other}.
  std::vector<std::pair<std::string_view, std::string_view>> spellings = {};
  TitanPairs torchtitan = TitanPairs::no_model;
  /// Ends of names of buffers that older files hold and no model reads.
  std::vector<std::string_view> buffers = {".rotary_emb.inv_freq"};

  /// Whether a row reads or writes a member of config.json.
  bool has_member(std::string_view key) const;

  /// The embedding's tensor in Hugging Face, and the output layer's where it has one of its own.
  std::string embedding_name() const;
  std::string output_layer_name() const;

  /// Completes what config.json says by what the tensors do; `has`: whether the file has one of
  /// that name.
  void read_tensors(const std::function<bool(const std::string& name)>& has,
                    Architecture& architecture) const;
};

/// All families, the more special first: recognition takes the first that can express a model.
/// Each stays where it is until the process ends.
std::vector<const Family*> families();
const Family* find_family(std::string_view name);

/// Adds a family after all others, for every later operation of the process; any thread may. The
/// strings that its rules and its other views refer to must stay. invalid for a name that another
/// family has, for a rule about a parameter that no block has, and without an embedding.
const Family& add_family(Family family);

/// One application of a rule.
struct Link {
  const Rule* rule = nullptr;
  const ParameterRow* row = nullptr;  // null for a constant
  std::string megatron;               // canonical; empty for a constant
  std::vector<std::string> hugging_face;
  Dims shape;           // canonical
  int64_t layer = 0;    // as by Architecture::is_moe(); 0 outside of layers
  bool fp32 = false;    // whatever the model's dtype
  double addend = 0;    // added on the way to Hugging Face
  int64_t expert = -1;  // place in the tensors of all experts, where Hugging Face has those
};

/// All links of a model, in the order of the network.
std::vector<Link> expand(const Family& family, const Architecture& architecture);

}  // namespace ferry
