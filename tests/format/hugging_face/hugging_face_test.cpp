// Hugging Face folders: which files hold the weights, and what must agree between them.
#include "ckpt/format/hugging_face/hugging_face.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string shard(const std::vector<std::string>& names) {
  std::vector<Entry> entries(names.size());
  std::vector<Entry*> order;
  for (size_t i = 0; i < names.size(); ++i) {
    entries[i].name = names[i];
    entries[i].shape = {2};
    order.push_back(&entries[i]);
  }
  uint64_t bytes = 0;
  std::string file = write_safetensors_header(order, {{"format", "pt"}}, 0, &bytes);
  file.resize(bytes);
  return file;
}

std::string index_of(const std::vector<std::pair<std::string, std::string>>& map) {
  nlohmann::json weight_map = nlohmann::json::object();
  for (const auto& [name, file] : map) weight_map[name] = file;
  return nlohmann::json{{"metadata", {{"total_size", 8}}}, {"weight_map", weight_map}}.dump();
}

struct HuggingFace : testing::Test {
  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();

  void put_two_shards() {
    memory->put("m/a-1.safetensors", shard({"x", "z"}));
    memory->put("m/a-2.safetensors", shard({"y"}));
  }
  void put_index(const std::vector<std::pair<std::string, std::string>>& map) {
    memory->put("m/model.safetensors.index.json", index_of(map));
  }

  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const Entry& entry : open_hugging_face(memory, "m").catalog.entries) {
      names.push_back(entry.name);
    }
    return names;
  }

  std::string refusal(ErrorKind kind) {
    try {
      open_hugging_face(memory, "m");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "was opened";
    return "";
  }
};

TEST_F(HuggingFace, OpensOneFileWithItsConfig) {
  memory->put("m/model.safetensors", shard({"b", "a"}));
  memory->put("m/config.json", R"({"model_type": "llama", "hidden_size": 8})");
  const HuggingFaceModel model = open_hugging_face(memory, "m");
  ASSERT_EQ(model.catalog.entries.size(), 2u);
  EXPECT_EQ(model.catalog.entries[0].name, "b");
  EXPECT_EQ(model.catalog.files.at(0).path, "m/model.safetensors");
  ASSERT_NE(model.config, nullptr);
  EXPECT_EQ(model.config->at("model_type"), "llama");
  EXPECT_EQ(model.metadata.at("format"), "pt");
  EXPECT_TRUE(model.notes.empty());
  for (const Entry& entry : model.catalog.entries) check_chunks(model.catalog, entry);
}

TEST_F(HuggingFace, OpensShardsOfAnIndex) {
  put_two_shards();
  memory->put("m/consolidated.safetensors", shard({"other"}));
  put_index({{"x", "a-1.safetensors"}, {"z", "a-1.safetensors"}, {"y", "a-2.safetensors"}});
  EXPECT_THAT(names(), ElementsAre("x", "z", "y"));
  EXPECT_TRUE(is_hugging_face_folder(*memory, "m"));
}

TEST_F(HuggingFace, OneFileComesBeforeAnIndex) {
  memory->put("m/model.safetensors", shard({"a"}));
  put_index({{"x", "gone.safetensors"}});
  EXPECT_THAT(names(), ElementsAre("a"));
  EXPECT_THAT(open_hugging_face(memory, "m").notes, ElementsAre(HasSubstr("ignored")));
}

TEST_F(HuggingFace, TakesLooseFilesAndCountsThem) {
  memory->put("m/model-00001-of-00003.safetensors", shard({"x"}));
  memory->put("m/model-00003-of-00003.safetensors", shard({"y"}));
  EXPECT_THAT(refusal(ErrorKind::not_found), HasSubstr("model-00002-of-00003.safetensors"));
  memory->put("m/model-00002-of-00003.safetensors", shard({"z"}));
  EXPECT_THAT(names(), ElementsAre("x", "z", "y"));
}

TEST_F(HuggingFace, RefusesFoldersWithoutWeights) {
  memory->put("m/config.json", "{}");
  EXPECT_FALSE(is_hugging_face_folder(*memory, "m"));
  EXPECT_THAT(refusal(ErrorKind::not_found), HasSubstr("pytorch_model.bin"));
}

TEST_F(HuggingFace, NamesMissingShards) {
  put_two_shards();
  put_index({{"x", "a-1.safetensors"}, {"z", "a-1.safetensors"}, {"w", "a-3.safetensors"}});
  EXPECT_THAT(refusal(ErrorKind::not_found), HasSubstr("a-3.safetensors"));
}

TEST_F(HuggingFace, SaysHowAnIndexDiffersFromItsShards) {
  put_two_shards();
  const auto damage = [&] { return open_hugging_face(memory, "m").damage; };
  put_index({{"x", "a-1.safetensors"}, {"z", "a-1.safetensors"}, {"y", "a-2.safetensors"}});
  EXPECT_THAT(damage(), ElementsAre());
  put_index({{"x", "a-1.safetensors"}, {"y", "a-2.safetensors"}});
  EXPECT_THAT(damage(), ElementsAre(HasSubstr("lacks 1 tensor that the shards hold: z")));
  put_index({{"x", "a-1.safetensors"},
             {"z", "a-1.safetensors"},
             {"y", "a-2.safetensors"},
             {"gone", "a-2.safetensors"}});
  EXPECT_THAT(damage(),
              ElementsAre(HasSubstr("names 1 tensor that none of the shards holds: gone")));
  put_index({{"x", "a-1.safetensors"}, {"z", "a-2.safetensors"}, {"y", "a-2.safetensors"}});
  EXPECT_THAT(damage(), ElementsAre(HasSubstr("places 1 tensor in the wrong shards: z")));
  EXPECT_THAT(names(), ElementsAre("x", "z", "y"));
}

TEST_F(HuggingFace, ReadsACompleteSetOfShardsWhoseIndexIsOfAnotherSave) {
  memory->put("m/model-00001-of-00002.safetensors", shard({"x"}));
  memory->put("m/model-00002-of-00002.safetensors", shard({"y"}));
  put_index({{"x", "model-00001-of-00003.safetensors"}, {"y", "model-00003-of-00003.safetensors"}});
  EXPECT_THAT(names(), ElementsAre("x", "y"));
  EXPECT_THAT(open_hugging_face(memory, "m").damage,
              testing::Contains(HasSubstr("2 of the 2 shards that it names are missing")));
  memory->put("m/model.safetensors.index.json", "{");
  EXPECT_THAT(open_hugging_face(memory, "m").damage, testing::Contains(HasSubstr("not JSON")));
  memory->put("m/model-00003-of-00003.safetensors", shard({"z"}));
  EXPECT_THAT(names(), ElementsAre("x", "y"));  // the other set is not whole
  memory->put("m/model-00001-of-00001.safetensors", shard({"z"}));
  EXPECT_THAT(refusal(ErrorKind::corrupt), HasSubstr("not JSON"));  // two sets are whole
}

// With the same values it is taken from one of them; with others nobody knows which is meant.
TEST_F(HuggingFace, ComparesATensorInTwoShards) {
  for (const std::string named : {"a-1.safetensors", "a-2.safetensors"}) {
    memory->put("m/a-1.safetensors", shard({"x", "z"}));
    memory->put("m/a-2.safetensors", shard({"y", "x"}));
    put_index({{"x", named}, {"y", "a-2.safetensors"}, {"z", "a-1.safetensors"}});
    const HuggingFaceModel model = open_hugging_face(memory, "m");
    EXPECT_EQ(model.catalog.entries.size(), 3u);
    EXPECT_THAT(model.damage, testing::IsEmpty());
    EXPECT_THAT(model.notes, ElementsAre("1 tensor is in more than one file, with the same "
                                         "values: x"));
    const Entry& x = *model.catalog.find("x");
    EXPECT_EQ(model.catalog.files[x.chunks[0].extent.file].path, "m/" + named);
  }
  std::string other = shard({"y", "x"});
  other.back() = 1;
  memory->put("m/a-2.safetensors", other);
  EXPECT_THAT(refusal(ErrorKind::corrupt),
              testing::AllOf(HasSubstr("x is in m/a-1.safetensors and in m/a-2.safetensors with"),
                             HasSubstr("the index names m/a-2.safetensors")));
}

TEST_F(HuggingFace, RefusesShardsOutsideTheFolder) {
  memory->put("secret.safetensors", shard({"x"}));
  for (const char* name : {"../secret.safetensors", "/secret.safetensors", ""}) {
    put_index({{"x", name}});
    refusal(ErrorKind::corrupt);
  }
}

TEST_F(HuggingFace, RefusesBadIndexes) {
  put_two_shards();
  for (const char* text :
       {"", "[]", "{}", "{\"weight_map\": []}", "{\"weight_map\": {\"x\": 1}}", "{\"weight_map\":",
        "{\"weight_map\": {\"x\": \"a-1.safetensors\", \"x\": \"a-1.safetensors\"}}",
        "{\"weight_map\": {}, \"weight_map\": {}}", "{\"weight_map\": {\"x\": {}}}"}) {
    memory->put("m/model.safetensors.index.json", text);
    refusal(ErrorKind::corrupt);
  }
}

TEST_F(HuggingFace, RefusesBadConfigs) {
  memory->put("m/model.safetensors", shard({"a"}));
  const std::string deep = std::string(200, '[') + std::string(200, ']');
  for (const std::string& text : {std::string("{"), std::string("[]"), std::string("{}\0x", 4),
                                  "{\"a\": " + deep + "}", std::string(1'000'000, '[')}) {
    memory->put("m/config.json", text);
    EXPECT_THAT(refusal(ErrorKind::corrupt), HasSubstr("m/config.json"));
  }
}

TEST_F(HuggingFace, SaysWhatAGitLfsPointerIs) {
  memory->put("m/model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  EXPECT_THAT(refusal(ErrorKind::corrupt), HasSubstr("git lfs pull"));
}

TEST_F(HuggingFace, OpensALoneFile) {
  memory->put("m/some.safetensors", shard({"a"}));
  EXPECT_EQ(open_safetensors_file(memory, "m/some.safetensors").entries.at(0).name, "a");
}

// Without an index the names of the shards that are there say which others there must be.
TEST_F(HuggingFace, NamesTheShardsThatAreMissingWithoutAnIndex) {
  for (const auto& [front, back, numbers, missing] :
       std::vector<std::tuple<std::string, std::string, std::vector<std::string>, std::string>>{
           {"model-", "-of-00003.safetensors", {"00001", "00003"}, "00002"},
           {"model-", "-of-3.safetensors", {"1", "2"}, "3"},
           {"model-", "-of-00003.safetensors", {"00000", "00001"}, "00002"},
           {"pytorch_model-", "-of-00003.bin", {"00001", "00003"}, "00002"}}) {
    memory = std::make_shared<MemoryFileSystem>();
    for (const std::string& number : numbers) {
      memory->put("m/" + front + number + back, shard({"x" + number}));
    }
    EXPECT_TRUE(is_hugging_face_folder(*memory, "m"));
    EXPECT_THAT(refusal(ErrorKind::not_found),
                HasSubstr("1 of 3 shards are missing, as the names of the others say: " + front +
                          missing + back + "; complete the download or copy"));
    if (back.ends_with(".bin")) continue;
    memory->put("m/" + front + missing + back, shard({"x" + missing}));
    EXPECT_EQ(names().size(), 3u);
  }
}

TEST_F(HuggingFace, SaysWhichOfSeveralWeightsAreRead) {
  memory->put("m/model.safetensors", shard({"x"}));
  memory->put("m/optimizer.bin", "");
  EXPECT_THAT(open_hugging_face(memory, "m").notes, testing::IsEmpty());
  for (const std::string other : {"pytorch_model.bin", "pytorch_model-00001-of-00002.bin",
                                  "consolidated.00.pth", "tf_model.h5", "flax_model.msgpack"}) {
    memory->put("m/" + other, "");
    EXPECT_THAT(open_hugging_face(memory, "m").notes,
                ElementsAre(HasSubstr("read from model.safetensors; " + other)));
    memory->remove_all("m/" + other);
  }
}

}  // namespace
}  // namespace ferry
