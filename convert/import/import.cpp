#include "convert/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/megatron/model/layer_spec.h"
#include "ckpt/megatron/state/norm_names.h"
#include "ckpt/megatron/state/vocabulary.h"
#include "convert/arguments/arguments.h"
#include "convert/base_only.h"
#include "convert/check/model_check.h"
#include "convert/config_json.h"
#include "convert/import/import_optimizer.h"
#include "convert/import/import_tensors.h"
#include "convert/language_part.h"
#include "convert/model/quantised_values.h"
#include "convert/recognise.h"
#include "convert/tokenizer.h"

namespace ferry {
namespace {

constexpr std::string_view kEmbedding = "embedding.word_embeddings.weight";
constexpr uint64_t kComparisonBytes = 8 << 20;
constexpr int64_t kMaxPadding = int64_t{1} << 20;
constexpr double kCheckpointVersion = 3.0;  // of Megatron-LM, since 2020

const std::string& config_folder(const Checkpoint& checkpoint, const ImportOptions& options) {
  return options.config_folder.empty() ? checkpoint.path : options.config_folder;
}

ReadConfig read_model(const Checkpoint& checkpoint, const ImportOptions& options) {
  const std::string& folder = config_folder(checkpoint, options);
  const auto config = read_hugging_face_config(*checkpoint.catalog->file_system, folder);
  const std::string path = join(folder, "config.json");
  if (!config) {
    fail(ErrorKind::not_found,
         "{}: does not exist, and nothing else says what the model is; {} names a folder "
         "that holds it",
         path, option("config_folder", "DIR"));
  }
  const auto part = language_part(*config, options.family);
  return read_config(part ? *part : *config, options.family, path, options.ignored_members);
}

std::optional<Quantisation> quantisation_of_model(const Checkpoint& checkpoint,
                                                  const ReadConfig& read,
                                                  const ImportOptions& options) {
  if (read.quantisation) return read.quantisation;
  return quantisation_of(nullptr, *checkpoint.catalog->file_system,
                         config_folder(checkpoint, options));
}

void read_tensors(const HuggingFaceTensors& tensors, ReadConfig& read) {
  const int64_t before = read.architecture.mtp_layers;
  read.family->read_tensors([&](const std::string& name) { return tensors.has(name); },
                            read.architecture);
  if (read.architecture.mtp_layers == before) return;
  read.warnings.push_back(fmt::format(
      "config.json counts {} prediction layers, but the file holds none: the model will have none",
      before));
}

// An output layer of its own is what transformers computes with, whatever config.json says of
// tying; one that is the embedding's copy is not.
void check_output_layer(const Catalog& catalog, ReadConfig& read) {
  const auto layer = tied_output_layer(catalog, read);
  if (!layer || layer->is_copy) return;
  read.architecture.tied = false;
  read.warnings.push_back(fmt::format(
      "config.json ties the output layer to the embedding (tie_word_embeddings), but tensor {} "
      "differs from {}: as in transformers, the model has both "
      "(--untie-embeddings-and-output-weights)",
      read.family->output_layer_name(), layer->embedding));
}

// The run that a conversion makes up, as far as the model alone does not say it.
class Arguments {
 public:
  Arguments(const ReadConfig& read, const Import& import, const ImportOptions& options)
      : read_(read), import_(import), options_(options) {}

  LoadedValue make(DType dtype, std::vector<std::string>& flags, const std::string& path) {
    WrittenArguments written = write_arguments(read_.architecture, draft_, args_);
    if (!written.problems.empty()) {
      fail(ErrorKind::unsupported, "{}: cannot become a Megatron model:\n  {}", path,
           fmt::join(written.problems, "\n  "));
    }
    flags = std::move(written.flags);
    put_sizes();
    put_precision(dtype, flags);
    put_tokenizer();
    return apply_target(std::move(draft_).finish(args_), options_.layout);
  }

 private:
  void put(const char* name, int64_t value) { draft_.put(args_, name, draft_.integer(value)); }
  void put(const char* name, bool value) { draft_.put(args_, name, draft_.boolean(value)); }
  void put(const char* name, const std::string& value) {
    draft_.put(args_, name, draft_.string(value));
  }

  void put_sizes() {
    put("seq_length", read_.architecture.positions);
    for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                             "context_parallel_size", "expert_model_parallel_size",
                             "expert_tensor_parallel_size", "data_parallel_size", "world_size"}) {
      put(name, int64_t{1});
    }
    for (const char* name : {"iteration", "consumed_train_samples", "consumed_valid_samples",
                             "skipped_train_samples"}) {
      put(name, int64_t{0});
    }
    put("no_save_optim", true);
    put("no_save_rng", true);
  }

  void put_precision(DType dtype, std::vector<std::string>& flags) {
    put("bf16", dtype == DType::bf16);
    put("fp16", dtype == DType::f16);
    draft_.put(args_, "params_dtype", draft_.dtype(dtype));
    if (dtype == DType::bf16) flags.insert(flags.begin(), "--bf16");
    if (dtype == DType::f16) flags.insert(flags.begin(), "--fp16");
  }

  void put_tokenizer() {
    put("vocab_size", read_.architecture.vocab);
    put("make_vocab_size_divisible_by", options_.make_vocab_size_divisible_by);
    write_tokens(read_.tokens, draft_, args_);
    if (!import_.has_tokenizer) return;
    put("tokenizer_type", std::string("HuggingFaceTokenizer"));
    put("tokenizer_model", options_.tokenizer_model);
  }

  const ReadConfig& read_;
  const Import& import_;
  const ImportOptions& options_;
  Draft draft_;
  Value args_ = draft_.instance("argparse.Namespace");
};

void find_tokenizer_files(const Checkpoint& checkpoint, const ImportOptions& options,
                          SpecialTokens& tokens, Import& import) {
  const FileSystem& files = *checkpoint.catalog->file_system;
  CarriedFiles carried = files_of_model(files, config_folder(checkpoint, options),
                                        options.tokenizer_folder, options.top_files_only);
  Tokenizer tokenizer = read_tokenizer(files, std::move(carried.files));
  const bool is_own = !options.top_files_only && !carried.left.empty();
  import.state.warnings = std::move(tokenizer.warnings);
  if (is_own) import.state.warnings.push_back(left_out(carried.left));
  complete_tokens(tokens, tokenizer, import.state.warnings);
  import.tokenizer_files = std::move(tokenizer.files);
  import.has_tokenizer = tokenizer.found;
  if (tokenizer.found) return;
  import.state.warnings.push_back(
      fmt::format("the folder holds no tokenizer files; {} copies them from elsewhere",
                  option("tokenizer_folder", "DIR")));
}

int64_t padded_rows(int64_t vocab, const ImportOptions& options) {
  const int64_t divisor = options.make_vocab_size_divisible_by;
  if (divisor < 1 || divisor > kMaxPadding) {
    fail(ErrorKind::invalid, "a vocabulary cannot be padded to a multiple of {}", divisor);
  }
  // Impossible numbers of ranks are refused with the whole layout.
  return padded_vocabulary(vocab, divisor,
                           std::clamp<int64_t>(options.layout.tensor.value_or(1), 1, kMaxPadding));
}

LoadedValue number(double value) {
  Draft draft;
  const Value real = draft.real(value);
  return std::move(draft).finish(real);
}

LoadedValue number(int64_t value) {
  Draft draft;
  const Value integer = draft.integer(value);
  return std::move(draft).finish(integer);
}

}  // namespace

std::optional<TiedOutputLayer> tied_output_layer(const Catalog& catalog, const ReadConfig& read) {
  if (!read.architecture.tied) return std::nullopt;
  const HuggingFaceTensors tensors(catalog, *read.family);
  const auto head = tensors.position(read.family->output_layer_name());
  const auto embedding = tensors.position(read.family->embedding_name());
  if (!head || !embedding) return std::nullopt;  // a missing embedding is missed soon
  const Entry &a = catalog.entries[*embedding], &b = catalog.entries[*head];
  return TiedOutputLayer{a.name, same_elements(catalog, a, b, kComparisonBytes)};
}

Import import_model(const Checkpoint& stored, const ImportOptions& options) {
  Checkpoint checkpoint = stored;
  if (options.dtype && !is_floating_point(*options.dtype)) {
    fail(ErrorKind::invalid, "dtype {} is not a floating-point type", torch_name(*options.dtype));
  }
  if (checkpoint.format != Format::hugging_face) {
    fail(ErrorKind::unsupported, "{}: is not a Hugging Face folder (weights and config.json)",
         checkpoint.path);
  }
  if (options.config_folder.empty()) refuse_adapter_folder(checkpoint);
  check_no_adapter(checkpoint);
  if (!options.ignore_index) require_index(checkpoint);
  ReadConfig read = read_model(checkpoint, options);
  QuantisedValues values = values_of(
      checkpoint.catalog, quantisation_of_model(checkpoint, read, options), checkpoint.path);
  checkpoint.catalog = std::move(values.catalog);
  if (!values.left_out.empty()) read.warnings.push_back(std::move(values.left_out));
  HuggingFaceTensors model(checkpoint.catalog, *read.family);
  read_tensors(model, read);
  check_output_layer(checkpoint.catalog, read);
  Architecture& a = read.architecture;
  a.padded_vocab = padded_rows(a.vocab, options);

  Import result;
  result.family = read.family->name;
  find_tokenizer_files(checkpoint, options, read.tokens, result);
  ImportedTensors tensors =
      import_tensors(checkpoint.catalog, model, *read.family, a,
                     {options.dtype, options.drop_unknown, options.any_dtype, {}}, checkpoint.path);
  RunState& state = result.state;
  if (options.optimizer) {
    add_optimizer(checkpoint, *read.family, a, options.drop_unknown, tensors);
  }
  for (const auto* more : {&read.warnings, &tensors.warnings}) {
    state.warnings.insert(state.warnings.end(), more->begin(), more->end());
  }
  state.args = Arguments(read, result, options).make(tensors.dtype, result.flags, checkpoint.path);
  if (const LayerSpec* spec = layer_spec_of(state.args.value)) {
    state.warnings.push_back(
        fmt::format("its layers are those of {}: Megatron Bridge loads them, Megatron-LM alone has "
                    "none of that kind",
                    spec->function));
  }
  // Arguments name no type: another family that has the same models may come first.
  const std::string& recognised = choose_family(a, std::nullopt, checkpoint.path).name;
  if (recognised != result.family) {
    state.warnings.push_back(
        fmt::format("of Megatron's arguments it is recognised as {}: {} makes "
                    "a model of its own type again",
                    recognised, option("family", result.family)));
  }
  state.source = checkpoint.catalog;
  state.tensors = std::move(tensors.tensors);
  state.dropped = std::move(tensors.dropped);
  state.iteration = 0;
  state.common.emplace_back("checkpoint_version", number(kCheckpointVersion));
  state.common.emplace_back("num_floating_point_operations_so_far", number(int64_t{0}));
  if (options.optimizer) add_optimizer_state(checkpoint, state);
  if (a.index_heads > 0) name_norms(state, true);
  for (const StateTensor& tensor : state.tensors) {
    if (tensor.role == Role::optimizer) continue;
    result.parameters =
        checked_add(result.parameters, element_count(tensor.shape, tensor.name), tensor.name);
  }
  return result;
}

LoadedValue arguments_of_config(const Checkpoint& checkpoint, const std::string& folder,
                                std::vector<std::string>& warnings, const ParallelTarget& layout) {
  ImportOptions options;
  options.layout = layout;
  options.config_folder = folder;
  ReadConfig read = read_model(checkpoint, options);
  const auto& entries = checkpoint.catalog->entries;
  const auto of_prediction = [](const Entry& entry) { return entry.name.starts_with("mtp."); };
  if (!std::any_of(entries.begin(), entries.end(), of_prediction)) {
    read.architecture.mtp_layers = 0;
  }
  DType dtype = DType::f32;
  for (const Entry& entry : entries) {
    if (entry.role == Role::model && entry.name.ends_with(kEmbedding)) dtype = entry.dtype;
  }
  warnings.insert(warnings.end(), read.warnings.begin(), read.warnings.end());
  std::vector<std::string> flags;
  return Arguments(read, Import(), options).make(dtype, flags, checkpoint.path);
}

}  // namespace ferry
