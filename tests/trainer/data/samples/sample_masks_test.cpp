#include <gmock/gmock.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "tests/trainer/data/corpora.h"
#include "trainer/data/samples/gpt_dataset.h"

namespace ferry {
namespace {

using testing::ElementsAre;

Sample masked(const MaskOptions& options, const std::vector<int32_t>& text) {
  Sample sample;
  SampleMasks(options).apply(text, sample);
  return sample;
}

// 9 ends a document: in the middle, twice in a row, and last.
const std::vector<int32_t> kText = {5, 9, 6, 9, 9, 7, 9, 8};

MaskOptions ended_by_nine() {
  MaskOptions options;
  options.end_of_document = 9;
  return options;
}

TEST(SampleMasks, NothingIsMaskedUnlessAsked) {
  const Sample sample = masked(ended_by_nine(), kText);
  EXPECT_THAT(sample.tokens, ElementsAre(5, 9, 6, 9, 9, 7, 9));
  EXPECT_THAT(sample.labels, ElementsAre(9, 6, 9, 9, 7, 9, 8));
  EXPECT_THAT(sample.loss_mask, ElementsAre(1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(sample.position_ids, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(sample.document_starts, ElementsAre(0));
}

TEST(SampleMasks, EachOptionDoesItsPart) {
  MaskOptions options = ended_by_nine();
  options.eod_mask_loss = true;
  EXPECT_THAT(masked(options, kText).loss_mask, ElementsAre(1, 0, 1, 0, 0, 1, 0));
  EXPECT_THAT(masked(options, kText).position_ids, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  options = ended_by_nine();
  options.reset_position_ids = true;
  EXPECT_THAT(masked(options, kText).position_ids, ElementsAre(0, 1, 0, 1, 0, 0, 1));
  EXPECT_THAT(masked(options, kText).document_starts, ElementsAre(0));
  options = ended_by_nine();
  options.reset_attention_mask = true;
  EXPECT_THAT(masked(options, kText).document_starts, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(masked(options, kText).loss_mask, ElementsAre(1, 1, 1, 1, 1, 1, 1));
}

TEST(SampleMasks, PaddingIsTokenZeroWithoutLoss) {
  const Sample sample = masked(ended_by_nine(), {5, 6, 7, -1, -1, -1});
  EXPECT_THAT(sample.tokens, ElementsAre(5, 6, 7, 0, 0));
  EXPECT_THAT(sample.labels, ElementsAre(6, 7, 0, 0, 0));
  EXPECT_THAT(sample.loss_mask, ElementsAre(1, 1, 0, 0, 0));
}

// Label i is (i^2 * factor + i) mod 50257; which ones go was computed with PyTorch 2.11.
std::vector<int64_t> dropped(int64_t k, int64_t h, int64_t count, int64_t factor) {
  MaskOptions options;
  options.goldfish_loss = true;
  options.goldfish_k = k;
  options.goldfish_h = h;
  std::vector<int32_t> text = {0};
  for (int64_t i = 0; i < count; ++i) {
    text.push_back(static_cast<int32_t>((i * i * factor + i) % 50257));
  }
  const Sample sample = masked(options, text);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < count; ++i) {
    if (sample.loss_mask[static_cast<size_t>(i)] == 0) places.push_back(i);
  }
  return places;
}

TEST(SampleMasks, GoldfishDropsTheSameLabels) {
  EXPECT_EQ(dropped(3, 4, 60, 7919),
            (std::vector<int64_t>{3,  5,  6,  12, 14, 21, 22, 23, 27, 30, 32,
                                  43, 45, 46, 48, 49, 52, 55, 56, 57, 58, 59}));
  EXPECT_EQ(dropped(50, 50, 400, 104729), (std::vector<int64_t>{80, 99, 150, 165, 178, 228, 248}));
  EXPECT_EQ(dropped(2, 13, 40, 99991),
            (std::vector<int64_t>{12, 13, 14, 15, 16, 19, 20, 21, 25, 27,
                                  28, 29, 30, 31, 32, 33, 34, 36, 37, 39}));
  EXPECT_TRUE(dropped(2, 50, 49, 3).empty());  // too few labels for one hash
  EXPECT_THROW(dropped(0, 4, 10, 1), Error);
  EXPECT_THROW(dropped(3, 0, 10, 1), Error);
}

TEST(Batch, RowsStandSideBySide) {
  const auto memory = test::corpora();
  const auto datasets = open_datasets(
      memory, test::options_of({{"data_path", {test::kCorpusA}}, {"reset_attention_mask", true}}));
  Sample sample;
  Batch batch;
  const std::vector<int64_t> indices = {7, 0, 99};
  read_batch(*datasets.train, indices, sample, batch);
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.sequence_length, 64);
  std::vector<int32_t> tokens, starts;
  for (size_t row = 0; row < indices.size(); ++row) {
    datasets.train->read(indices[row], sample);
    tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
    for (const int32_t start : sample.document_starts) {
      starts.push_back(start + static_cast<int32_t>(64 * row));
    }
  }
  EXPECT_EQ(batch.tokens, tokens);
  EXPECT_EQ(batch.document_starts, starts);
  EXPECT_GT(starts.size(), 3u);
  read_batch(*datasets.train, {}, sample, batch);
  EXPECT_EQ(batch.rows, 0);
  EXPECT_TRUE(batch.tokens.empty());
  EXPECT_THROW(read_batch(*datasets.train, std::vector<int64_t>{-1}, sample, batch), Error);
  EXPECT_THROW(read_batch(*datasets.train, std::vector{datasets.train->size()}, sample, batch),
               Error);
}

// What pads may be a token that the model has no row for: it is read as another.
TEST(Batch, PaddingMayLieBeyondTheModel) {
  DataOptions options = test::options_of({{"data_path", {test::kCorpusA}}, {"pad", 250}});
  options.token_limit = 250;
  const auto datasets = open_datasets(test::corpora(), options);
  Sample sample;
  int64_t masked = 0;
  for (int64_t i = 0; i < datasets.train->size(); ++i) {
    datasets.train->read(i, sample);
    masked += std::ranges::count(sample.loss_mask, 0.0f);
    EXPECT_EQ(std::ranges::count(sample.tokens, 250), 0);
  }
  EXPECT_GT(masked, 0);
}

// A token that the model has no row for names its file.
TEST(Batch, TokensBeyondTheModelAreErrors) {
  DataOptions options = test::options_of({{"data_path", {test::kCorpusA}}});
  options.token_limit = 250;
  const auto datasets = open_datasets(test::corpora(), options);
  Sample sample;
  try {
    for (int64_t i = 0; i < datasets.train->size(); ++i) datasets.train->read(i, sample);
    FAIL() << "token 250 was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_THAT(error.what(), testing::HasSubstr("corpus_a_text_document.bin: sequence "));
    EXPECT_THAT(error.what(),
                testing::HasSubstr("the token 250, but the model has tokens 0 to 249"));
  }
}

}  // namespace
}  // namespace ferry
