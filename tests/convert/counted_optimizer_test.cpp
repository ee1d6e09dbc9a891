// Optimizer state that counts parameters gets their names: those that transformers lists, of every
// family (tests/fixtures/hf_names), and of a checkpoint of its Trainer (tests/fixtures/foreign).
#include "convert/import/counted_optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/edit.h"
#include "convert/import.h"
#include "convert/import/parameter_order.h"
#include "tests/convert/models.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ParameterOrder : public testing::TestWithParam<std::string> {
 protected:
  const json names_ = test::read_json(FERRY_FIXTURES "/hf_names/" + GetParam() + ".json");

  std::vector<CountedParameter> stored() const {
    std::vector<CountedParameter> all;
    for (const auto& [name, shape] : names_["tensors"].items()) {
      all.push_back({name, shape.get<Dims>()});
    }
    return all;
  }
};

// The names of files are as good as those of the model in memory.
std::vector<std::string> names_in_memory(const std::vector<CountedParameter>& listed,
                                         const std::string& type) {
  std::vector<std::string> names;
  for (const CountedParameter& parameter : listed) {
    names.push_back(parameter.name);
    for (const auto& [hub, memory] : find_family(type)->spellings) {
      names.back() = test::replaced(names.back(), std::string(hub), std::string(memory));
    }
  }
  return names;
}

TEST_P(ParameterOrder, IsThatOfTransformers) {
  const auto expected = names_["parameters"].get<std::vector<std::string>>();
  const std::string type = names_["config"]["model_type"];
  const std::set<std::string> router_comes_first = {"mixtral",    "qwen2_moe",  "gpt_oss",
                                                    "hy_v3",      "qwen3_next", "qwen3_5_moe_text",
                                                    "minimax_m2", "olmoe"};
  const bool router_first = router_comes_first.contains(type);
  const auto listed = listed_parameters(stored(), {true, router_first}, "optimizer.pt");
  EXPECT_EQ(names_in_memory(listed, type), expected);
  std::vector<CountedParameter> undecayed;
  for (const CountedParameter& parameter : listed) {
    if (!is_decayed_by_name(parameter.name)) undecayed.push_back(parameter);
  }
  EXPECT_EQ(names_in_memory(undecayed, type), names_["undecayed"].get<std::vector<std::string>>());
}

TEST_P(ParameterOrder, HasNoPlaceForOtherNames) {
  std::vector<CountedParameter> all = stored();
  all.push_back({"model.layers.0.self_attn.sums", {4}});
  EXPECT_THROW(listed_parameters(all, {}, "optimizer.pt"), Error);
}

INSTANTIATE_TEST_SUITE_P(Families, ParameterOrder, testing::ValuesIn(test::names_in("/hf_names")),
                         [](const auto& suite) { return suite.param; });

TEST(ParameterOrder, ExpertsOfOldReleasesAreModules) {
  std::vector<CountedParameter> stored;
  for (const char* module : {"gate", "experts.1.w1", "experts.1.w2", "experts.1.w3",
                             "experts.10.w1", "experts.10.w3", "experts.10.w2"}) {
    stored.push_back({fmt::format("model.layers.0.block_sparse_moe.{}.weight", module), {2, 2}});
  }
  std::ranges::reverse(stored);
  std::vector<std::string> expected;
  for (const char* module : {"gate", "experts.1.w1", "experts.1.w2", "experts.1.w3",
                             "experts.10.w1", "experts.10.w2", "experts.10.w3"}) {
    expected.push_back(fmt::format("model.layers.0.mlp.{}.weight", module));
  }
  EXPECT_EQ(names_in_memory(listed_parameters(stored, {false, true}, "x"), "mixtral"), expected);
}

const std::string kTrainer = FERRY_FIXTURES "/foreign/training/trainer/checkpoint-4";

// Where the bytes lie.
using Place = std::pair<uint64_t, uint64_t>;
Place place_of(const Entry& entry) {
  return {entry.chunks.at(0).extent.offset, entry.chunks.at(0).extent.length};
}

std::vector<std::string> trainer_parameters() {
  std::vector<std::string> decayed = {"model.embed_tokens.weight"}, others;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    for (const char* module :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      decayed.push_back(prefix + module + ".weight");
    }
    others.push_back(prefix + "input_layernorm.weight");
    others.push_back(prefix + "post_attention_layernorm.weight");
  }
  decayed.push_back("lm_head.weight");
  others.push_back("model.norm.weight");
  decayed.insert(decayed.end(), others.begin(), others.end());
  return decayed;
}

TEST(CountedOptimizer, HasTheParametersOfATrainer) {
  Checkpoint model = open_checkpoint(posix_file_system(), kTrainer);
  const size_t tensors = model.catalog->entries.size();
  add_counted_optimizer(model);
  EXPECT_EQ(model.optimizer_steps, 4);
  const Checkpoint stored = open_checkpoint(posix_file_system(), kTrainer + "/optimizer.pt");
  std::map<std::string, Place> places;
  for (const Entry& entry : stored.catalog->entries) places[entry.name] = place_of(entry);
  const std::vector<std::string> names = trainer_parameters();
  EXPECT_EQ(model.catalog->entries.size(), tensors + 2 * names.size());
  std::set<std::string> found;
  for (size_t i = tensors; i < model.catalog->entries.size(); ++i) {
    const Entry& entry = model.catalog->entries[i];
    const size_t dot = entry.name.find('.', std::string_view("optimizer.state.").size());
    const auto at = std::ranges::find(names, entry.name.substr(dot + 1));
    ASSERT_NE(at, names.end()) << entry.name;
    const std::string kind = entry.name.substr(16, dot - 16);
    EXPECT_EQ(place_of(entry), places.at(fmt::format("state.{}.{}", at - names.begin(), kind)));
    EXPECT_EQ(model.catalog->files.at(entry.chunks[0].extent.file).path,
              kTrainer + "/optimizer.pt");
    found.insert(entry.name);
  }
  EXPECT_EQ(found.size(), 2 * names.size());
}

// A copy of it, changed.
class ChangedTrainer : public testing::Test {
 protected:
  ChangedTrainer() { test::copy_tree(kTrainer, *files_, "run"); }
  std::string problem() const {
    Checkpoint model = open_checkpoint(files_, "run");
    try {
      add_counted_optimizer(model);
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::internal);
      return error.what();
    }
    return "";
  }
  std::string content(const std::string& path) const {
    const auto file = files_->open(path);
    std::string bytes(file->size(), '\0');
    file->read(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
};

TEST_F(ChangedTrainer, AnOptimizerOfAnotherModelIsRefused) {
  const std::string lightning = FERRY_FIXTURES "/foreign/training/accelerate";
  test::copy_tree(lightning, *files_, "other");
  files_->put("run/optimizer.pt", content("other/optimizer.bin"));
  EXPECT_EQ(problem(), "");  // one group of the same model's parameters
  files_->put("run/model.safetensors", content("other/model.safetensors"));
  EXPECT_EQ(problem(), "");
  std::string config = content("run/model.safetensors");
  const std::string norm = "model.norm.weight";
  config.replace(config.find(norm), norm.size(), "model.nurm.weight");
  files_->put("run/model.safetensors", config);
  EXPECT_THAT(problem(), HasSubstr("which number tensor model.nurm.weight has is not known"));
}

TEST_F(ChangedTrainer, AModelWithoutItsFileStaysAlone) {
  files_->remove_all("run/optimizer.pt");
  EXPECT_EQ(problem(), "");
}

TEST_F(ChangedTrainer, DamageIsRefused) {
  const std::string whole = content("run/optimizer.pt");
  for (size_t at = 0; at < whole.size(); at += 97) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    if (at % 2 == 0) bytes.resize(at);
    files_->put("run/optimizer.pt", bytes);
    problem();
  }
}

}  // namespace
}  // namespace ferry
