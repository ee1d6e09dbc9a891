#include "ckpt/format/hugging_face/hugging_face_layout.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::ElementsAre;

std::vector<Entry> bytes_of(const std::vector<std::pair<std::string, int64_t>>& tensors) {
  std::vector<Entry> entries;
  for (const auto& [name, bytes] : tensors) {
    Entry& entry = entries.emplace_back();
    entry.name = name;
    entry.dtype = DType::bf16;
    entry.shape = {bytes / 2};
  }
  return entries;
}

std::vector<std::string> file_names(const HuggingFaceLayout& layout) {
  std::vector<std::string> names;
  for (const FileInfo& file : layout.target.files) names.push_back(file.path);
  return names;
}

std::vector<uint32_t> files_of_tensors(const HuggingFaceLayout& layout) {
  std::vector<uint32_t> files;
  for (const Entry& entry : layout.target.entries) files.push_back(entry.chunks.at(0).extent.file);
  return files;
}

TEST(HuggingFaceLayout, OneShardHasNoIndex) {
  const auto layout = lay_out_hugging_face(bytes_of({{"b", 10}, {"a", 6}}));
  EXPECT_THAT(file_names(layout), ElementsAre("model.safetensors"));
  EXPECT_EQ(layout.index_json, "");
  EXPECT_EQ(layout.tensor_bytes, 16u);
  EXPECT_EQ(layout.count.parameters, 8);
  EXPECT_EQ(layout.target.files[0].bytes, layout.literals.at(0).bytes.size() + 16);
  EXPECT_EQ(layout.target.entries[0].name, "b");
  EXPECT_EQ(layout.target.entries[0].chunks.at(0).extent.offset, layout.literals[0].bytes.size());
}

TEST(HuggingFaceLayout, PacksInOrderAndGivesABigTensorItsOwnShard) {
  const auto entries = bytes_of({{"a", 4}, {"b", 6}, {"c", 2}, {"big", 30}, {"d", 10}, {"e", 2}});
  const auto layout = lay_out_hugging_face(entries, 10);
  EXPECT_THAT(files_of_tensors(layout), ElementsAre(0, 0, 1, 2, 3, 4));
  EXPECT_EQ(file_names(layout).front(), "model-00001-of-00005.safetensors");
  EXPECT_EQ(file_names(layout).back(), "model-00005-of-00005.safetensors");
  EXPECT_THAT(files_of_tensors(lay_out_hugging_face(entries, 12)), ElementsAre(0, 0, 0, 1, 2, 2));
}

TEST(HuggingFaceLayout, WritesTheIndexAsTransformersDoes) {
  const auto layout = lay_out_hugging_face(bytes_of({{"b", 4}, {"a\u00e9", 6}}), 6);
  EXPECT_EQ(layout.index_json, R"({
  "metadata": {
    "total_parameters": 5,
    "total_size": 10
  },
  "weight_map": {
    "a\u00e9": "model-00002-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors"
  }
}
)");
}

TEST(HuggingFaceLayout, HeadersDescribeTheirFiles) {
  const auto layout = lay_out_hugging_face(bytes_of({{"a", 4}, {"b", 6}, {"c", 8}}), 10);
  for (const Literal& literal : layout.literals) {
    MemoryFileSystem memory;
    const FileInfo& file = layout.target.files.at(literal.file);
    std::string content = literal.bytes;
    content.resize(file.bytes);
    memory.put(file.path, content);
    const auto header = read_safetensors_header(*memory.open(file.path), literal.file);
    EXPECT_EQ(header.metadata.at("format"), "pt");
    for (const Entry& entry : header.entries) {
      const Extent planned = layout.target.find(entry.name)->chunks.at(0).extent;
      EXPECT_EQ(planned.file, literal.file);
      EXPECT_EQ(planned.offset, entry.chunks.at(0).extent.offset);
    }
  }
}

TEST(HuggingFaceLayout, NoTensorsMakeAnEmptyFile) {
  const auto layout = lay_out_hugging_face({});
  EXPECT_THAT(file_names(layout), ElementsAre("model.safetensors"));
}

TEST(HuggingFaceLayout, RefusesEqualNamesAcrossShardsAndEmptyShards) {
  EXPECT_THROW(lay_out_hugging_face(bytes_of({{"a", 4}, {"b", 6}, {"a", 8}}), 4), Error);
  EXPECT_THROW(lay_out_hugging_face(bytes_of({{"a", 4}}), 0), Error);
}

}  // namespace
}  // namespace ferry
