// An input is three lines of JSON: what is asked for, a config.json, and arguments of Megatron-LM.
// The corpus is models of every family, of which both are known (fixtures/hf_names).
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/hugging_face/hugging_face_layout.h"
#include "ckpt/format/hugging_face/json_events.h"
#include "ckpt/megatron/state_of.h"
#include "convert/arguments/arguments.h"
#include "convert/config_json.h"
#include "convert/export/quantise.h"
#include "convert/import.h"
#include "convert/model/transforms.h"
#include "convert/recognise.h"
#include "convert/rewrite/rewrite.h"
#include "tests/convert/support.h"
#include "tests/fuzz/finding.h"
#include "tests/fuzz/json_members.h"
#include "tests/fuzz/planning.h"
#include "tests/fuzz/zero_files.h"

namespace ferry::test {
namespace {

using nlohmann::json;

// Tensors are made to fit models up to this size.
constexpr int64_t kMostLayers = 32, kMostExperts = 32;

// Forms of quantised weights: their codes, scales of groups of columns (0: one in all), and what
// comes besides.
struct PartsOfForm {
  const char* codes_end;
  DType codes;
  int64_t in_element;
  const char* scales_end;
  DType scales;
  int64_t group;
  const char* more_end;
  DType more;
  bool is_by_rows;  // eight rows of groups in an element; else one element
};
constexpr PartsOfForm kForms[] = {
    {"", DType::f8_e4m3, 1, "_scale_inv", DType::f32, 0, "", DType::f32, false},
    {"", DType::f8_e4m3, 1, "_scale", DType::u8, 32, "", DType::f32, false},
    {"_packed", DType::u8, 2, "_scale", DType::u8, 32, "", DType::f32, false},
    {"", DType::u8, 2, "_scale", DType::f8_e4m3, 16, "_scale_2", DType::f32, false},
    {"_packed", DType::u8, 2, "_scale", DType::f8_e4m3, 16, "_global_scale", DType::f32, false},
    {"_packed", DType::i32, 8, "_scale", DType::bf16, 32, "_zero_point", DType::i32, true}};

struct Counts {
  uint64_t inputs = 0, configs = 0, imports = 0, imported = 0, exports = 0, resharded = 0;
  uint64_t rewrites = 0, values = 0;
  std::map<std::string, uint64_t> by_family;
  ~Counts() {
    std::printf(
        "of %llu inputs %llu configs and %llu models were imported, %llu of them planned; "
        "%llu exports, %llu reshards and %llu rewrites were planned, values were made of %llu "
        "weights\n",
        ull(inputs), ull(configs), ull(imports), ull(imported), ull(exports), ull(resharded),
        ull(rewrites), ull(values));
    for (const auto& [family, count] : by_family) {
      std::printf("  %s %llu\n", family.c_str(), ull(count));
    }
  }
  static unsigned long long ull(uint64_t number) { return number; }
};

Counts& counts() {
  static Counts all;
  return all;
}

class ConversionMutator final : public Mutator {
 public:
  explicit ConversionMutator(const std::vector<std::string>& corpus) {
    for (const std::string& file : corpus) {
      json model = json::parse(file, nullptr, false);
      if (!model.is_object() || !model.contains("config") || !model.contains("args")) continue;
      members_.learn(model["config"]);
      arguments_.learn(model["args"]);
      models_.emplace_back(std::move(model["config"]), std::move(model["args"]));
    }
    if (models_.empty()) models_.emplace_back(json::object(), json::object());
  }

  std::string input(Random& random) const override {
    auto [config, args] = random.pick(models_);
    const json settings = {{"family", config.value("model_type", "")},
                           {"layout", random_layout(random)},
                           {"writer", random_writer(random)},
                           {"misfits", random.one_in(4) ? random.next() : 0},
                           {"dtype", random.below(8)},
                           {"form", random.one_in(3) ? 1 + random.below(std::size(kForms)) : 0},
                           {"divisor", random.one_in(4) ? random.below(300) : 128},
                           {"vocabulary", random.one_in(8) ? json(random.below(600)) : json()}};
    for (uint64_t changes = random.below(4); changes > 0; --changes) {
      members_.change(config, random);
      arguments_.change(args, random);
    }
    return settings.dump() + "\n" + to_json_text(config) + "\n" + to_json_text(args);
  }

 private:
  std::vector<std::pair<json, json>> models_;
  Members members_, arguments_;
};

// Changes that make tensors of a model fit no more.
void misfit(std::vector<Entry>& entries, uint64_t seed) {
  Random random(seed);
  for (uint64_t changes = 1 + random.below(2); changes > 0 && !entries.empty(); --changes) {
    const size_t at = random.below(entries.size());
    Entry& entry = entries[at];
    switch (random.below(5)) {
      case 0:
        entries.erase(entries.begin() + static_cast<ptrdiff_t>(at));
        break;
      case 1:
        if (!entry.shape.empty()) entry.shape[random.below(entry.shape.size())] = random.below(40);
        break;
      case 2:
        entry.name += random.one_in(2) ? ".x" : "_scale_inv";
        break;
      case 3:
        entry.shape.insert(entry.shape.begin(), 1);
        break;
      default:
        entry.dtype = static_cast<DType>(random.below(12));
    }
  }
}

// Weights of two axes as they would be quantised.
std::vector<Entry> quantised(std::vector<Entry> entries, const PartsOfForm& form) {
  std::vector<Entry> result;
  for (Entry& entry : entries) {
    if (entry.shape.size() != 2 || !entry.name.ends_with("_proj.weight")) {
      result.push_back(std::move(entry));
      continue;
    }
    const std::string name = entry.name;
    const int64_t rows = entry.shape[0], columns = entry.shape[1];
    const auto ceil_of = [](int64_t count, int64_t step) { return (count + step - 1) / step; };
    const int64_t groups = form.group == 0 ? 1 : ceil_of(columns, form.group);
    entry.name += form.codes_end;
    entry.dtype = form.codes;
    entry.shape[1] = ceil_of(columns, form.in_element);
    result.push_back(std::move(entry));
    result.push_back({name + form.scales_end,
                      form.scales,
                      {form.group == 0 ? 1 : rows, groups},
                      {},
                      Role::model});
    if (*form.more_end == 0) continue;
    const Dims more = form.is_by_rows ? Dims{ceil_of(rows, 8), groups} : Dims{1};
    result.push_back({name + form.more_end, form.more, more, {}, Role::model});
  }
  return result;
}

// Reads small quantised tensors of a plan's source.
void read_values(const Catalog& source) {
  constexpr int64_t kMostElements = 1 << 16;
  int left = 3;
  for (const Entry& entry : source.entries) {
    if (!entry.quantised || entry.elements() > kMostElements || left-- == 0) continue;
    if (!succeeds("values", [&] { read_tensor(source, entry, uint64_t{1} << 20); })) {
      finding("a planned tensor cannot be read");
    }
    ++counts().values;
  }
}

bool is_small(const Architecture& a) {
  return a.layers <= kMostLayers && a.experts <= kMostExperts && a.mtp_layers <= kMostLayers;
}

// The tensors that a config.json asks for; none where that is unknown.
std::vector<Entry> tensors_of_config(const json& config) {
  std::vector<Entry> entries;
  succeeds("tensors of the config", [&] {
    ReadConfig read = read_config(config, std::nullopt, "fuzz");
    Architecture& a = read.architecture;
    if (!is_small(a)) return;
    a.padded_vocab = a.vocab;
    for (const Link& link : expand(*read.family, a)) {
      if (link.rule->copies || link.megatron.empty() || link.expert > 0) continue;
      const std::vector<Part> parts = parts_of(link, a);
      for (size_t i = 0; i < parts.size(); ++i) {
        entries.push_back({link.hugging_face[i], DType::bf16, parts[i].shape, {}, Role::model});
      }
    }
    ++counts().configs;
  });
  return entries;
}

// The same model in a new form, by itself or filled up from itself.
void rewrite(const Checkpoint& checkpoint, const json& settings) {
  if (checkpoint.catalog->entries.empty()) return;
  const uint64_t kind = settings["misfits"].get<uint64_t>() +
                        static_cast<uint64_t>(settings["divisor"].get<int64_t>());
  ExportOptions options;
  if (settings["dtype"] == 1) options.dtype = DType::f16;
  if (kind % 3 == 0) {
    const std::vector<std::string_view> forms = quantised_forms();
    options.quantise = forms[kind / 3 % forms.size()];
  }
  if (kind % 4 == 1) options.original = &checkpoint;
  Export model;
  if (!succeeds("rewrite", [&] { model = plan_rewrite(checkpoint, options); })) return;
  if (!succeeds("check", [&] { check(model.plan); })) finding("the plan of a rewrite is wrong");
  read_values(model.plan.source);
  ++counts().rewrites;
}

void import(const json& settings, const std::string& config_text) {
  json config;
  const bool reads = succeeds("config", [&] { config = parse_python_json(config_text, "fuzz"); });
  auto files = std::make_shared<ZeroFiles>();
  files->put("hf/config.json", config_text);
  std::vector<Entry> entries = tensors_of_config(reads && config.is_object() ? config : json());
  if (const auto form = settings.value("form", uint64_t{0})) {
    entries = quantised(std::move(entries), kForms[(form - 1) % std::size(kForms)]);
  }
  if (const auto seed = settings["misfits"].get<uint64_t>()) misfit(entries, seed);
  Checkpoint checkpoint;
  checkpoint.format = Format::hugging_face;
  checkpoint.path = "hf";
  checkpoint.catalog.edit().file_system = files;
  succeeds("header", [&] {
    const HuggingFaceLayout layout = lay_out_hugging_face(entries, UINT64_MAX);
    if (layout.literals.size() != 1) return;
    files->put_zeros("hf/model.safetensors", layout.literals[0].bytes,
                     layout.target.files[0].bytes);
    checkpoint = open_checkpoint(files, "hf");
  });
  recognise(checkpoint);
  rewrite(checkpoint, settings);
  ImportOptions options;
  options.layout = layout_of(settings["layout"]);
  options.make_vocab_size_divisible_by = settings["divisor"].get<int64_t>();
  options.drop_unknown = settings["misfits"].get<uint64_t>() % 2 == 1;
  if (settings["dtype"] == 1) options.dtype = DType::f16;
  Import model;
  if (!succeeds("import", [&] { model = import_model(checkpoint, options); })) return;
  ++counts().imports;
  if (plan_state(std::move(model.state), {}, settings["writer"])) ++counts().imported;
}

// The tensors that arguments ask for, or those of the arguments before they were changed.
std::vector<Entry> tensors_of_arguments(const Value& args) {
  std::vector<Entry> entries;
  succeeds("tensors of the arguments", [&] {
    const Architecture a = read_arguments(args, "fuzz").architecture;
    if (!is_small(a)) return;
    Tensors tensors;
    for (const Link& link : expand(choose_family(a, std::nullopt, "fuzz"), a)) {
      if (!link.megatron.empty()) tensors[link.megatron].shape = link.shape;
    }
    for (const auto& [name, tensor] : stacked_as_today(std::move(tensors), a)) {
      entries.push_back({name, DType::bf16, tensor.shape, {}, Role::model});
    }
  });
  return entries;
}

Checkpoint megatron_checkpoint(const LoadedValue& args, std::vector<Entry> entries) {
  auto files = std::make_shared<ZeroFiles>();
  const std::string path = "run/iter_0000001/data";
  uint64_t bytes = 0;
  for (Entry& entry : entries) {
    const auto length = static_cast<uint64_t>(entry.bytes());
    entry.chunks = {Chunk({Box::whole(entry.shape)}, {}, {0, bytes, length})};
    if (__builtin_add_overflow(bytes, length, &bytes)) fail(ErrorKind::invalid, "too large");
  }
  files->put_zeros(path, "", bytes);
  Checkpoint checkpoint;
  checkpoint.path = "run/iter_0000001";
  checkpoint.iteration = 1;
  checkpoint.args = args;
  checkpoint.catalog.edit().file_system = files;
  checkpoint.catalog.edit().add_file(path, bytes);
  checkpoint.catalog.edit().entries = std::move(entries);
  return checkpoint;
}

void export_and_reshard(const json& settings, const std::string& args_text) {
  LoadedValue args;
  if (!succeeds("args", [&] { args = loaded(parse_python_json(args_text, "fuzz")); })) return;
  std::vector<Entry> entries = tensors_of_arguments(args.value);
  if (const auto seed = settings["misfits"].get<uint64_t>()) misfit(entries, seed);
  Checkpoint checkpoint;
  const bool made =
      succeeds("checkpoint", [&] { checkpoint = megatron_checkpoint(args, std::move(entries)); });
  if (!made) return;
  recognise(checkpoint);
  ExportOptions options;
  if (!settings["vocabulary"].is_null()) options.vocab_size = settings["vocabulary"].get<int64_t>();
  options.keep_padding = settings["dtype"] == 2;
  if (settings["dtype"] == 1) options.dtype = DType::f16;
  Export model;
  if (succeeds("export", [&] { model = plan_export(checkpoint, options); })) {
    if (!succeeds("check", [&] { check(model.plan); })) finding("the plan of an export is wrong");
    ++counts().exports;
  }
  RunState state;
  if (!succeeds("state", [&] { state = state_of(checkpoint); })) return;
  if (plan_state(std::move(state), layout_of(settings["layout"]), settings["writer"])) {
    ++counts().resharded;
  }
}

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>& corpus, size_t) {
  return std::make_unique<ConversionMutator>(corpus);
}

}  // namespace ferry::test

// Any config.json, with tensors that fit or nearly fit it, is a plan of a run at any layout, and
// any arguments, with theirs, are a plan of an export and of the same run at any layout, or an
// Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::test;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  if (first == std::string::npos || second == std::string::npos) return 0;
  const auto settings = nlohmann::json::parse(text.substr(0, first), nullptr, false);
  if (!settings.is_object() || !settings.contains("misfits")) return 0;
  ++counts().inputs;
  ++counts().by_family[settings.value("family", "")];
  import(settings, text.substr(first + 1, second - first - 1));
  export_and_reshard(settings, text.substr(second + 1));
  return 0;
}
