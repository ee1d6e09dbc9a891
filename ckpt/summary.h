// What can be said about a checkpoint, as data: the model, its adapters, what training left next to
// it. inspect() (ops/inspect.h) collects it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ferry {

/// What a model is, as far as arguments and tensor names say. Zero or empty: unknown or none.
struct ModelSummary {
  std::string family;                // "llama", "deepseek_v3", ...; empty: not recognised
  std::vector<std::string> reasons;  // not recognised: what does not fit, one sentence each
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn_hidden = 0;
  int64_t vocab = 0;         // true size, without padding; 0 when only the padded one is known
  int64_t padded_vocab = 0;  // rows of the embedding
  int64_t experts = 0, experts_per_token = 0, expert_ffn_hidden = 0, shared_expert_ffn_hidden = 0;
  int64_t mtp_layers = 0;
  int64_t sequence = 0;  // max_position_embeddings
  bool tied_embeddings = false;
};

/// How many parameters a model has, which is not always how many elements are stored
/// (format/hugging_face/parameter_count.h).
struct ParameterCount {
  int64_t parameters = 0;         // with the packed ones
  int64_t packed_parameters = 0;  // of these
  int64_t packed_elements = 0;    // that hold them
  int64_t bits = 0;               // of a packed parameter; 0: there are none, or of several sizes
  int64_t integers = 0;           // of quantised weights whose parameters cannot be counted
  int64_t quantisation_elements = 0;
  int64_t training_tensors = 0, training_elements = 0;
};

/// The adapters inside a checkpoint (convert/adapters.h).
struct AdapterSummary {
  int64_t tensors = 0, parameters = 0;
  std::vector<int64_t> ranks;         // rising
  std::vector<std::string> targets;   // last parts of the modules' names, in the catalog's order
  std::vector<std::string> names;     // of the adapters, where they have some
  std::vector<std::string> methods;   // "LoRA", "DoRA", or parts of the names of others ("ia3_l")
  std::vector<std::string> replaced;  // modules that were trained whole (modules_to_save)
  int64_t wrapped = 0;                // tensors of the model's own inside wrappers
  bool alone = false;                 // the modules' own weights are not among the tensors

  /// True, too, where only wrappers are left of it.
  bool any() const { return tensors > 0 || wrapped > 0; }
};

/// The program that is to load a Hugging Face folder.
enum class Loader : uint8_t { any, transformers, vllm, sglang };

/// Something in a Hugging Face folder that a program which loads the model would stumble over.
struct Finding {
  bool is_problem = true;  // the model would not load, or not as it was saved; false: a warning
  std::string kind;        // for programs: "missing", "shape", "index", ... (ops/check.h)
  std::string subject;     // the file, tensor or member; of several tensors a name with '*'
  std::string what;        // one sentence
  std::string advice;      // what to do
};

/// Whether a Hugging Face folder holds the model that its config.json describes.
struct ModelCheck {
  std::vector<std::string> problems;  // transformers would not load the model whole
  std::vector<std::string> warnings;  // unusual: one layer's tensor of another dtype than the rest
};

/// Files or folders of one kind.
struct TrainingPart {
  std::string kind;  // "optimizer", "scheduler", "random numbers", ...
  std::string name;  // "optimizer.pt", "rng_state_*.pth"
  int64_t count = 0;
  bool is_folder = false;
};

struct TrainingFolder {
  std::optional<int64_t> step, last_step;  // that training was at, and is to end with
  std::optional<double> epoch;
  std::vector<TrainingPart> parts;
  std::string problem;  // why trainer_state.json says nothing; empty: it does, or is not there

  bool empty() const { return parts.empty(); }
};

/// A weight that is not its optimizer's fp32 master rounded.
struct MasterMismatch {
  std::string tensor;
  int64_t elements = 0, differing = 0;
  int64_t first = 0;              // position of the first that differs, in row-major order
  double master = 0, weight = 0;  // that one's values
};

}  // namespace ferry
