// The token files of tests/fixtures/data in memory, and options as JSON.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support.h"
#include "trainer/data/open_datasets.h"

namespace ferry::test {

inline constexpr const char* kCorpusA = "corpus_a_text_document";
inline constexpr const char* kCorpusB = "corpus_b_text_document";

/// Both pairs in `folder` ("" or ending in a slash), with an empty folder "cache".
inline std::shared_ptr<MemoryFileSystem> corpora(const std::string& folder = "") {
  auto memory = std::make_shared<MemoryFileSystem>();
  for (const char* corpus : {kCorpusA, kCorpusB}) {
    for (const char* suffix : {".bin", ".idx"}) {
      const std::string name = std::string(corpus) + suffix;
      memory->put(folder + name, read_file(*posix_file_system(), fixture("data/" + name), 1 << 20));
    }
  }
  return memory;
}

/// As tests/interop/text/make_data_cases.py says them.
inline DataOptions options_of(const nlohmann::json& given) {
  const auto words = [&given](const char* key) {
    return given.value(key, std::vector<std::string>());
  };
  DataOptions options;
  options.data_path = words("data_path");
  options.split_data_path = {words("train_data_path"), words("valid_data_path"),
                             words("test_data_path")};
  options.mock_data = options.data_path.empty() && options.split_data_path.train.empty();
  options.split = given.value("split", options.data_path.empty() ? "" : "90, 8, 2");
  options.cache_path = "cache";
  options.sequence_length = given.value("seq_length", 64);
  options.seed = given.value("seed", int64_t{1234});
  const nlohmann::json samples = given.value("samples", nlohmann::json{100, 10, 4});
  for (const DataSplit split : kSplits) {
    const nlohmann::json& count = samples.at(static_cast<size_t>(split));
    if (!count.is_null()) options.samples[split] = count.get<int64_t>();
  }
  options.drop_last_partial_validation_sequence = given.value("drop_last", true);
  options.mid_level_dataset_surplus = given.value("surplus", 0.005);
  options.vocabulary_size = given.value("vocab_size", 300);
  options.masks.end_of_document = given.value("eod", 250);
  options.masks.padding = given.value("pad", -1);
  options.masks.reset_position_ids = given.value("reset_position_ids", false);
  options.masks.reset_attention_mask = given.value("reset_attention_mask", false);
  options.masks.eod_mask_loss = given.value("eod_mask_loss", false);
  options.tokenizer = fmt::format(
      R"({{"class": "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText",
           "tokenizer_path": null, "vocab_size": "{}", "pad_id": "{}"}})",
      options.vocabulary_size, options.masks.padding);
  return options;
}

}  // namespace ferry::test
