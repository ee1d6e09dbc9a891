// State dicts of other programs, as they saved them (tests/interop/fixtures/make_state_dicts.py),
// read as the Hugging Face model that they are of.
#include "convert/state_dict/state_dict.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/pickle/values/draft.h"
#include "convert/import.h"
#include "convert/state_dict/prefix.h"
#include "tests/convert/support.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMemory = 1 << 20;
const std::string kForeign = FERRY_FIXTURES "/foreign/";

Checkpoint open(const std::string& name) {
  return open_checkpoint(posix_file_system(), kForeign + name);
}

StateDictOptions options() {
  StateDictOptions options;
  options.config_folder = kForeign + "model";
  return options;
}

std::map<std::string, std::string> contents(const Catalog& catalog) {
  std::map<std::string, std::string> all;
  for (const Entry& entry : catalog.entries) {
    all[entry.name] = read_tensor(catalog, entry, kMemory);
  }
  return all;
}

const std::map<std::string, std::string>& truth() {
  static const auto all = contents(open("model").catalog);
  return all;
}

ErrorKind kind_of(const std::function<void()>& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message) *message = error.what();
    return error.kind();
  }
  return ErrorKind::internal;
}

TEST(StateDict, IsTheModelAfterEveryPrefix) {
  const std::pair<const char*, const char*> all[] = {
      {"lightning.ckpt", "state_dict.model."}, {"compiled.pt", "module."}, {"dcp", "state.model."}};
  for (const auto& [name, prefix] : all) {
    const Checkpoint checkpoint = open(name);
    ASSERT_TRUE(is_state_dict(checkpoint)) << name;
    const StateDict state_dict = read_state_dict(checkpoint, options());
    EXPECT_EQ(state_dict.prefix, prefix) << name;
    EXPECT_EQ(state_dict.family, "llama") << name;
    EXPECT_EQ(contents(state_dict.model.catalog), truth()) << name;
  }
}

TEST(StateDict, OfSeveralModelsOneIsChosen) {
  const Checkpoint checkpoint = open("average.pt");
  std::string message;
  EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, options()); }, &message), ErrorKind::invalid);
  EXPECT_THAT(message, HasSubstr("under 'average.' and under 'model.'"));
  StateDictOptions one = options();
  one.is_chosen = [](std::string_view name) { return name.starts_with("model."); };
  EXPECT_EQ(contents(read_state_dict(checkpoint, one).model.catalog), truth());
  one.is_chosen = [](std::string_view name) { return name.starts_with("average."); };
  EXPECT_NE(contents(read_state_dict(checkpoint, one).model.catalog), truth());
}

TEST(StateDict, NamesAreChanged) {
  Checkpoint checkpoint = open("compiled.pt");
  for (Entry& entry : checkpoint.catalog.edit().entries) {
    if (entry.name == "module.lm_head.weight") entry.name = "module.unembedding";
  }
  std::string message;
  EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, options()); }, &message),
            ErrorKind::mismatch);
  EXPECT_THAT(message, HasSubstr("lm_head.weight"));
  EXPECT_THAT(message, HasSubstr("unembedding"));
  StateDictOptions renamed = options();
  renamed.rename = [](std::string_view name) {
    return std::string(name == "module.unembedding" ? "module.lm_head.weight" : name);
  };
  EXPECT_EQ(contents(read_state_dict(checkpoint, renamed).model.catalog), truth());
}

TEST(StateDict, ABareModelGetsItsOutermostModule) {
  Checkpoint checkpoint = open("compiled.pt");
  for (Entry& entry : checkpoint.catalog.edit().entries) {
    const std::string plain = without_wrappers(entry.name);
    entry.name = plain.starts_with("module.model.") ? plain.substr(13) : plain.substr(7);
  }
  const StateDict state_dict = read_state_dict(checkpoint, options());
  EXPECT_EQ(state_dict.prefix, "");
  EXPECT_EQ(contents(state_dict.model.catalog), truth());
}

TEST(StateDict, WhatIsMissingLeftOverOrMisshapenIsNamed) {
  const auto refused = [](const std::function<void(Checkpoint&)>& damage) {
    Checkpoint checkpoint = open("compiled.pt");
    damage(checkpoint);
    std::string message;
    EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, options()); }, &message),
              ErrorKind::mismatch);
    return message;
  };
  EXPECT_THAT(
      refused([](Checkpoint& c) { c.catalog.edit().entries.erase(c.catalog->entries.begin()); }),
      HasSubstr("model.embed_tokens.weight"));
  EXPECT_THAT(refused([](Checkpoint& c) {
                c.catalog.edit().entries.push_back(c.catalog->entries[0]);
                c.catalog.edit().entries.back().name = "module.model.layers.0.adapter";
              }),
              HasSubstr("model.layers.0.adapter"));
  EXPECT_THAT(refused([](Checkpoint& c) {
                Entry& entry = c.catalog.edit().entries[0];
                entry.shape[0] = 40;
                entry.chunks[0].box = Box::whole(entry.shape);
              }),
              HasSubstr("[40, 16]"));
}

// As programs save that leave out what they did not train.
TEST(StateDict, WhatIsMissingComesFromTheModelThatWasTrained) {
  Checkpoint checkpoint = open("dcp");
  std::erase_if(checkpoint.catalog.edit().entries, [](const Entry& entry) {
    return entry.name.find("embed_tokens") != std::string::npos ||
           entry.name.find("layers.0.") != std::string::npos ||
           entry.name.find("lm_head") != std::string::npos;
  });
  std::string message;
  EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, options()); }, &message),
            ErrorKind::mismatch);
  EXPECT_THAT(message, HasSubstr("options.fill_from=DIR takes what is missing"));
  const Checkpoint original = open("model");
  StateDictOptions filled;  // which says the configuration, too
  filled.fill_from = original.path;
  const StateDict state_dict = read_state_dict(checkpoint, filled);
  EXPECT_LT(state_dict.model.catalog->entries.size(), truth().size());
  ExportOptions to;
  to.original = &original;
  const Export planned = plan_state_dict(state_dict, to);
  check(planned.plan);
  EXPECT_THAT(planned.warnings,
              testing::Contains(HasSubstr("has no output layer: lm_head.weight")));
  const auto target = std::make_shared<MemoryFileSystem>();
  target->create_folder("out");
  run(planned.plan, *target, "out", {});
  EXPECT_EQ(contents(open_safetensors_file(target, "out/model.safetensors")), truth());
}

// config.json ties them, and both are there.
TEST(StateDict, AnOutputLayerThatIsNotTheEmbeddingIsReported) {
  const auto folder = std::filesystem::temp_directory_path() / "ferry-tied-state-dict";
  std::filesystem::create_directories(folder);
  std::string config = read_file(*posix_file_system(), kForeign + "model/config.json", 1 << 20);
  const size_t at = config.find("\"tie_word_embeddings\": false");
  ASSERT_NE(at, std::string::npos);
  config.replace(at, 28, "\"tie_word_embeddings\": true");
  std::ofstream(folder / "config.json") << config;
  StateDictOptions tied;
  tied.config_folder = folder.string();
  Checkpoint checkpoint = open("dcp");
  const StateDict both = read_state_dict(checkpoint, tied);
  EXPECT_EQ(contents(both.model.catalog), truth());
  EXPECT_THAT(
      both.warnings,
      testing::Contains(HasSubstr("lm_head.weight differs from model.embed_tokens.weight")));
  auto& entries = checkpoint.catalog.edit().entries;
  const auto named = [&](std::string_view end) {
    return std::ranges::find_if(entries, [&](const Entry& each) {
      return each.role == Role::model && each.name.ends_with(end);
    });
  };
  named("lm_head.weight")->chunks = named("embed_tokens.weight")->chunks;
  const StateDict one = read_state_dict(checkpoint, tied);
  EXPECT_EQ(one.model.catalog->find("lm_head.weight"), nullptr);
  EXPECT_THAT(one.warnings, testing::Not(testing::Contains(HasSubstr("differs"))));
  std::erase_if(entries, [](const Entry& each) {
    return each.role == Role::model && each.name.ends_with("embed_tokens.weight");
  });
  const StateDict head_alone = read_state_dict(checkpoint, tied);
  EXPECT_NE(head_alone.model.catalog->find("model.embed_tokens.weight"), nullptr);
  EXPECT_EQ(head_alone.model.catalog->find("lm_head.weight"), nullptr);
  Checkpoint titan = open("titan.pt");
  EXPECT_EQ(kind_of([&] { read_state_dict(titan, tied); }), ErrorKind::mismatch);
  std::filesystem::remove_all(folder);
}

TEST(StateDict, IsHeldAgainstTheConfigurationThatGoesWithIt) {
  const auto check_of = [](const std::function<void(Catalog&)>& damage) {
    Checkpoint checkpoint = open("verl/fsdp2/global_step_1/actor");
    damage(checkpoint.catalog.edit());
    return check_state_dict(checkpoint);
  };
  ModelCheck check = check_of([](Catalog&) {});
  EXPECT_THAT(check.problems, testing::IsEmpty());
  EXPECT_THAT(check.warnings, testing::IsEmpty());
  check = check_of([](Catalog& catalog) { catalog.entries[0].shape[0] -= 8; });
  EXPECT_THAT(check.problems, testing::ElementsAre(HasSubstr(": has [")));
  check = check_of([](Catalog& catalog) { catalog.entries.erase(catalog.entries.begin()); });
  EXPECT_THAT(check.problems, testing::IsEmpty());
  EXPECT_THAT(check.warnings, testing::ElementsAre(HasSubstr("missing for llama (1)")));
  check = check_of([](Catalog& catalog) {  // as bitsandbytes packs them
    catalog.entries[0].dtype = DType::u8;
    catalog.entries[0].shape = {8, 1};
  });
  EXPECT_THAT(check.problems, testing::IsEmpty());
}

TEST(StateDict, UnknownTensorsAreLeftOutOnRequest) {
  Checkpoint checkpoint = open("compiled.pt");
  checkpoint.catalog.edit().entries.push_back(checkpoint.catalog->entries[0]);
  checkpoint.catalog.edit().entries.back().name = "module.model.layers.0.adapter";
  StateDictOptions dropping = options();
  dropping.drop_unknown = true;
  const StateDict state_dict = read_state_dict(checkpoint, dropping);
  EXPECT_EQ(contents(state_dict.model.catalog), truth());
  ASSERT_EQ(state_dict.warnings.size(), 1u);
  EXPECT_THAT(state_dict.warnings[0], HasSubstr("adapter"));
}

TEST(StateDict, FlatParametersOfFsdpAreRefused) {
  Checkpoint checkpoint = open("compiled.pt");
  checkpoint.catalog.edit().entries[0].name = "module._fsdp_wrapped_module._flat_param";
  EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, options()); }), ErrorKind::unsupported);
}

TEST(StateDict, WithoutConfigurationItIsAskedFor) {
  std::string message;
  Checkpoint checkpoint = open("dcp");
  EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, {}); }, &message), ErrorKind::not_found);
  EXPECT_THAT(message, HasSubstr("options.config_folder=DIR"));
  checkpoint.conversion = "`litgpt convert_from_litgpt` renames them";
  EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, {}); }, &message), ErrorKind::not_found);
  EXPECT_THAT(message, HasSubstr("convert_from_litgpt"));
}

// A Hugging Face model whose configuration transformers alone knows.
TEST(StateDict, OfAnUnknownFamilyIsWrittenUnchecked) {
  const auto folder = std::filesystem::temp_directory_path() / "ferry-state-dict-config";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "unheard_of"})";
  StateDictOptions unknown;
  unknown.config_folder = folder.string();
  const StateDict state_dict = read_state_dict(open("lightning.ckpt"), unknown);
  EXPECT_EQ(state_dict.family, "");
  EXPECT_THAT(state_dict.warnings, testing::Contains(HasSubstr("not checked")));
  std::filesystem::remove_all(folder);
}

TEST(StateDict, PlansAFolderWithTheWeightsType) {
  const Checkpoint checkpoint = open("compiled.pt");
  const StateDict state_dict = read_state_dict(checkpoint, options());
  ExportOptions wide;
  wide.dtype = DType::f32;
  const Export planned = plan_state_dict(state_dict, wide);
  check(planned.plan);
  const auto config = nlohmann::json::parse(planned.small_files.at(0).second);
  EXPECT_EQ(config["dtype"], "float32");
  EXPECT_EQ(config["vocab_size"], 41);
  const Export same = plan_state_dict(state_dict, {});
  EXPECT_EQ(same.small_files.at(0).second,
            test::read_json(kForeign + "model/config.json").dump(2) + "\n");
}

// Made by torchtitan's own adapter: names, and the order of rows of queries and keys.
TEST(StateDict, TorchtitansOwnNamesBecomeThoseOfTransformers) {
  const Checkpoint checkpoint = open("titan.pt");
  const StateDict state_dict = read_state_dict(checkpoint, options());
  EXPECT_EQ(state_dict.prefix, "model.");
  ASSERT_EQ(&*state_dict.source, &*checkpoint.catalog);
  const Export planned = plan_state_dict(state_dict, {});
  check(planned.plan);
  const auto target = std::make_shared<MemoryFileSystem>();
  target->create_folder("out");
  run(planned.plan, *target, "out", {});
  const Catalog written = open_safetensors_file(target, "out/model.safetensors");
  EXPECT_EQ(contents(written), truth());
}

// As verl's dist_ckpt has them: the format of Megatron-LM without its arguments.
TEST(StateDict, AMegatronCheckpointWithoutArgumentsIsThatOfItsConfiguration) {
  Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), FERRY_FIXTURES "/core/mistral/iter_0000001");
  const Export expected = plan_export(checkpoint, {});
  const auto folder = std::filesystem::temp_directory_path() / "ferry-without-arguments";
  std::filesystem::create_directories(folder);
  ASSERT_EQ(expected.small_files.at(0).first, "config.json");
  std::ofstream(folder / "config.json") << expected.small_files.at(0).second;
  checkpoint.args = {};
  EXPECT_TRUE(lacks_arguments(checkpoint));
  EXPECT_FALSE(is_state_dict(checkpoint));
  std::vector<std::string> warnings;
  checkpoint.args = arguments_of_config(checkpoint, folder.string(), warnings);
  const Export found = plan_export(checkpoint, {});
  EXPECT_EQ(found.small_files.at(0).second, expected.small_files.at(0).second);
  ASSERT_EQ(found.plan.target.entries.size(), expected.plan.target.entries.size());
  for (size_t i = 0; i < found.plan.target.entries.size(); ++i) {
    EXPECT_EQ(found.plan.target.entries[i].name, expected.plan.target.entries[i].name);
    EXPECT_EQ(found.plan.target.entries[i].shape, expected.plan.target.entries[i].shape);
  }
  std::filesystem::remove_all(folder);
}

// Accelerate's LOCAL_STATE_DICT of FSDP 1 (tests/interop/fixtures/make_trainer.py).
TEST(StateDict, FlattenedParametersAreRefused) {
  std::string message;
  const Checkpoint checkpoint = open("training/fsdp1_local");
  EXPECT_EQ(kind_of([&] { read_state_dict(checkpoint, options()); }, &message),
            ErrorKind::unsupported);
  EXPECT_THAT(message, HasSubstr("_flat_param is a parameter that FSDP flattened"));
  EXPECT_THAT(message, HasSubstr("StateDictType.SHARDED_STATE_DICT"));
}

// {"model": {"encoder.weight": ...}} is not {"model.encoder.weight": ...}.
TEST(Prefix, OfAPyTorchCheckpointIsInItsPaths) {
  Draft draft;
  const Value paths = draft.dict();
  const auto add = [&](const std::string& name, const std::vector<std::string>& path) {
    std::vector<Value> parts;
    for (const std::string& part : path) parts.push_back(draft.string(part));
    draft.put(paths, name, draft.tuple(parts));
  };
  add("model.encoder.a", {"model", "encoder.a"});
  add("model.pooler.b", {"model", "pooler.b"});
  add("model.c", {"model", "c"});
  add("other.d.e", {"other", "d.e"});
  add("model.whole.f", {"model.whole.f"});
  add("model.nested.g", {"model", "nested", "g"});
  const LoadedValue all = std::move(draft).finish(paths);
  const auto container = [&](const std::vector<std::string>& names) {
    return container_in_paths(all.value, names);
  };
  EXPECT_EQ(container({"model.encoder.a", "model.pooler.b", "model.c"}), "model.");
  EXPECT_EQ(container({"model.encoder.a", "other.d.e"}), "");
  EXPECT_EQ(container({"model.whole.f"}), "");
  EXPECT_EQ(container({"model.nested.g"}), "");  // dicts of modules are the model's own
  EXPECT_EQ(container({"model.encoder.a", "unknown"}), "");
  EXPECT_EQ(container_in_paths(Value(), {"model.encoder.a"}), "");
}

TEST(Prefix, OfUnknownModelsIsWhatPutsThemInContainers) {
  EXPECT_EQ(guess_prefix({"module.model.a", "module.lm_head.b"}), "module.");
  EXPECT_EQ(guess_prefix({"model.model.a", "model.lm_head.b"}), "model.");
  EXPECT_EQ(guess_prefix({"model.layers.0.a", "model.norm"}), "");  // a tied model's own
  EXPECT_EQ(guess_prefix({"state_dict.model.transformer.h", "state_dict.model.lm_head.b"}),
            "state_dict.model.");
  EXPECT_EQ(guess_prefix({"a", "module.b"}), "");
  EXPECT_EQ(without_wrappers("_orig_mod.a._fsdp_wrapped_module.b"), "a.b");
  EXPECT_EQ(without_wrappers("my_orig_mod.a"), "my_orig_mod.a");
}

}  // namespace
}  // namespace ferry
