#include "trainer/data/documents/indexed_dataset.h"

#include <gmock/gmock.h>

#include <random>

#include "tests/io/fault_file_system.h"
#include "tests/random_cases.h"
#include "tests/trainer/data/corpora.h"
#include "trainer/data/documents/indexed_dataset_writer.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> sequence(const IndexedDataset& dataset, int64_t number) {
  std::vector<int32_t> tokens(static_cast<size_t>(std::max(dataset.length(number), 0)));
  dataset.read(number, 0, tokens);
  return tokens;
}

// Two documents, one of two sequences, and an empty one between them.
void write_small(const std::shared_ptr<const FileSystem>& memory, const std::string& prefix,
                 DType type, bool overwrite = false) {
  IndexedDatasetWriter writer(memory, prefix, type, overwrite);
  writer.add_sequence(std::vector<int32_t>{1, 2, 3});
  writer.add_sequence({});
  writer.end_document();
  writer.end_document();
  writer.add_sequence(std::vector<int32_t>{100, 7});
  writer.end_document();
  writer.commit();
}

TEST(IndexedDatasetWriter, TakesSequencesInPieces) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  IndexedDatasetWriter writer(memory, "a", DType::u16);
  writer.add_tokens(std::vector<int32_t>{1, 2});
  writer.add_tokens({});
  writer.add_tokens(std::vector<int32_t>{3});
  writer.end_sequence();
  writer.end_document();
  writer.add_tokens(std::vector<int32_t>{4});
  EXPECT_THROW(writer.commit(), Error);
  writer.end_sequence();
  writer.end_document();
  writer.commit();
  const IndexedDataset dataset(memory, "a");
  ASSERT_EQ(dataset.sequences(), 2);
  EXPECT_THAT(sequence(dataset, 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(sequence(dataset, 1), ElementsAre(4));
}

TEST(IndexedDataset, ReadsWhatMegatronWrote) {
  const IndexedDataset dataset(posix_file_system(),
                               test::fixture("data/") + std::string(test::kCorpusA));
  EXPECT_EQ(dataset.sequences(), 400);
  EXPECT_EQ(dataset.documents(), 400);
  EXPECT_EQ(dataset.type(), DType::u16);
  int64_t tokens = 0;
  for (int64_t i = 0; i < 400; ++i) {
    tokens += dataset.length(i);
    EXPECT_EQ(sequence(dataset, i).back(), 250);
  }
  EXPECT_EQ(2 * static_cast<uint64_t>(tokens), dataset.token_bytes());
  std::vector<int32_t> middle(3);
  dataset.read(5, 2, middle);
  const std::vector<int32_t> whole = sequence(dataset, 5);
  EXPECT_THAT(middle, ElementsAre(whole[2], whole[3], whole[4]));
}

TEST(IndexedDataset, WritesWhatMegatronWould) {
  const auto memory = test::corpora();
  const IndexedDataset original(memory, test::kCorpusB);
  IndexedDatasetWriter writer(memory, "again", original.type());
  for (int64_t d = 0; d < original.documents(); ++d) {
    for (int64_t i = original.document_begin(d); i < original.document_begin(d + 1); ++i) {
      writer.add_sequence(sequence(original, i));
    }
    writer.end_document();
  }
  writer.commit();
  for (const char* suffix : {".bin", ".idx"}) {
    EXPECT_EQ(memory->get(std::string("again") + suffix),
              memory->get(test::kCorpusB + std::string(suffix)));
  }
}

TEST(IndexedDataset, HoldsEveryTypeOfToken) {
  for (const DType type : {DType::u8, DType::i8, DType::i16, DType::u16, DType::i32, DType::i64}) {
    const auto memory = std::make_shared<MemoryFileSystem>();
    write_small(memory, "small", type);
    const IndexedDataset dataset(memory, "small");
    EXPECT_EQ(dataset.type(), type);
    EXPECT_EQ(dataset.documents(), 3);
    EXPECT_EQ(dataset.document_begin(1), 2);
    EXPECT_EQ(dataset.document_begin(2), 2);
    EXPECT_THAT(sequence(dataset, 0), ElementsAre(1, 2, 3));
    EXPECT_THAT(sequence(dataset, 1), ElementsAre());
    EXPECT_THAT(sequence(dataset, 2), ElementsAre(100, 7));
    EXPECT_EQ(memory->get("small.idx").size(), 34u + 12 * 3 + 8 * 4);
  }
  const auto memory = std::make_shared<MemoryFileSystem>();
  EXPECT_THROW(IndexedDatasetWriter(memory, "small", DType::bf16), Error);
  IndexedDatasetWriter bytes(memory, "small", DType::u8);
  EXPECT_THROW(bytes.add_sequence(std::vector<int32_t>{256}), Error);
  EXPECT_THROW(bytes.add_sequence(std::vector<int32_t>{-1}), Error);
  EXPECT_EQ(token_type_for(65499), DType::u16);
  EXPECT_EQ(token_type_for(65500), DType::i32);
}

// The size of an index of one sequence a document is datatrove's; codes are Megatron-LM's.
TEST(IndexedDataset, HasTheLayoutThatOthersRead) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  IndexedDatasetWriter writer(memory, "many", DType::u16);
  for (int i = 0; i < 35000; ++i) {
    writer.add_sequence(std::vector<int32_t>{1, 2});
    writer.end_document();
  }
  writer.commit();
  const std::string index = memory->get("many.idx");
  EXPECT_EQ(index.size(), 700042u);
  EXPECT_EQ(index.substr(0, 18), std::string("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x8", 18));
  for (const auto& [type, code] : {std::pair{DType::u8, 1},
                                   {DType::i8, 2},
                                   {DType::i16, 3},
                                   {DType::i32, 4},
                                   {DType::i64, 5},
                                   {DType::u16, 8}}) {
    EXPECT_EQ(code_of_token_type(type), code);
  }
}

TEST(IndexedDataset, MergesAsOnePassWouldWrite) {
  const auto memory = test::corpora();
  IndexedDatasetWriter writer(memory, "both", DType::u16);
  uint64_t copied = 0;
  for (const char* corpus : {test::kCorpusB, test::kCorpusA}) {
    writer.append(IndexedDataset(memory, corpus), [&copied](uint64_t bytes) { copied += bytes; });
  }
  writer.commit();
  EXPECT_EQ(memory->get("both.bin"),
            memory->get("corpus_b_text_document.bin") + memory->get("corpus_a_text_document.bin"));
  EXPECT_EQ(copied, memory->get("both.bin").size());
  const IndexedDataset both(memory, "both"), a(memory, test::kCorpusA);
  EXPECT_EQ(both.documents(), 550);
  EXPECT_EQ(both.document_begin(151), 151);
  EXPECT_EQ(sequence(both, 150), sequence(a, 0));
  EXPECT_EQ(sequence(both, 549), sequence(a, 399));
}

TEST(IndexedDataset, DoesNotMergeWhatDoesNotFit) {
  const auto memory = test::corpora();
  write_small(memory, "wide", DType::i32);
  IndexedDatasetWriter writer(memory, "both", DType::u16);
  EXPECT_THROW(writer.append(IndexedDataset(memory, "wide")), Error);
  const std::string bin = memory->get("corpus_b_text_document.bin");
  memory->put("corpus_b_text_document.bin", bin + "xx");
  EXPECT_THROW(writer.append(IndexedDataset(memory, test::kCorpusB)), Error);
}

// Whatever fails, and whenever: no file, or both; and never an index of other tokens.
TEST(IndexedDataset, AppearsWholeOrNotAtAll) {
  for (const bool overwrite : {false, true}) {
    for (uint64_t fail_at = 1;; ++fail_at) {
      const auto memory = std::make_shared<MemoryFileSystem>();
      if (overwrite) write_small(memory, "small", DType::i32);
      const auto faulty =
          std::make_shared<FaultFileSystem>(memory, fail_at, ErrorKind::exhausted, true);
      try {
        write_small(faulty, "small", DType::u16, overwrite);
      } catch (const Error&) {
      }
      if (memory->status("small.idx").kind == PathKind::file) {
        EXPECT_THAT(sequence(IndexedDataset(memory, "small"), 2), ElementsAre(100, 7));
      }
      if (faulty->operations() < fail_at) break;
    }
  }
  const auto memory = std::make_shared<MemoryFileSystem>();
  write_small(memory, "small", DType::u16);
  EXPECT_THAT(memory->list(""), ElementsAre("small.bin", "small.idx"));
  EXPECT_THROW(write_small(memory, "small", DType::u16), Error);
}

std::string message_of(const std::string& index, ErrorKind kind) {
  const auto memory = test::corpora();
  memory->put("corpus_a_text_document.idx", index);
  try {
    const IndexedDataset dataset(memory, test::kCorpusA);
    for (int64_t i = 0; i < dataset.sequences(); ++i) sequence(dataset, i);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

template <typename T>
std::string with(std::string index, size_t at, T value) {
  std::memcpy(index.data() + at, &value, sizeof value);
  return index;
}

TEST(IndexedDataset, NamesWhatIsWrong) {
  const std::string index = test::corpora()->get("corpus_a_text_document.idx");
  const auto message = [](const std::string& changed, ErrorKind kind = ErrorKind::corrupt) {
    return message_of(changed, kind);
  };
  EXPECT_THAT(message(index.substr(0, 33)), HasSubstr("33 bytes are too few"));
  EXPECT_THAT(message(with(index, 0, 'X')), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(message(with(index, 9, int64_t{2}), ErrorKind::unsupported), HasSubstr("version 2"));
  EXPECT_THAT(message(with(index, 17, uint8_t{9})), HasSubstr("9 is not a token type code"));
  EXPECT_THAT(message(with(index, 17, uint8_t{0})), HasSubstr("0 is not a token type code"));
  EXPECT_THAT(message(with(index, 17, uint8_t{7}), ErrorKind::unsupported),
              HasSubstr("not tokens"));
  EXPECT_THAT(message(with(index, 17, uint8_t{4})), HasSubstr("exceeds the 88254 bytes"));
  EXPECT_THAT(message(with(index, 17, uint8_t{1})), HasSubstr("and the second begins at byte"));
  EXPECT_THAT(message(with(index, 18, int64_t{401})), HasSubstr("do not fit"));
  EXPECT_THAT(message(with(index, 18, int64_t{399})), HasSubstr("follow the last"));
  EXPECT_THAT(message(with(index, 18, int64_t{-1})), HasSubstr("do not fit"));
  EXPECT_THAT(message(with(index, 26, int64_t{1} << 61)), HasSubstr("do not fit"));
  EXPECT_THAT(message(with(index, 34, int32_t{-1})),
              HasSubstr("no error"));  // no token is asked for
  EXPECT_THAT(message(with(index, 34, int32_t{100000})), HasSubstr("exceeds the 88254 bytes"));
  EXPECT_THAT(message(with(index, 34 + 1600, int64_t{-2})), HasSubstr("exceeds the 88254 bytes"));
  EXPECT_THAT(message(with(index, 34 + 1600, int64_t{88254})), HasSubstr("exceeds"));
  EXPECT_THAT(message(with(index, 34 + 4800, int64_t{1})), HasSubstr("documents have sequences 1"));
  EXPECT_THAT(message(with(index, index.size() - 8, int64_t{9})), HasSubstr("0 to 9"));
  EXPECT_THAT(message(index + std::string(400, '\1')), HasSubstr("no error"));  // modes
  EXPECT_THAT(message(index + "x"), HasSubstr("1 bytes follow"));
  EXPECT_THROW(IndexedDataset(test::corpora(), "nothing"), Error);
}

// A copy that was interrupted: else a run would end where it comes to what is missing.
TEST(IndexedDataset, IsOpenedToTrainOnWhereItsTokensAreThere) {
  const auto memory = test::corpora();
  const DataOptions options = test::options_of({{"data_path", {test::kCorpusB}}});
  open_datasets(memory, options);  // the order of samples is in the cache from now on
  const std::string bin = memory->get("corpus_b_text_document.bin");
  memory->put("corpus_b_text_document.bin", bin.substr(0, bin.size() - 1));
  try {
    open_datasets(memory, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("corpus_b_text_document.idx: sequence 149 of "));
    EXPECT_THAT(error.what(), HasSubstr("exceeds"));
  }
}

// Damage anywhere is an error or gives tokens; it never reads outside the files.
TEST(IndexedDataset, AnyDamageIsAnErrorOrTokens) {
  const std::string index = test::corpora()->get("corpus_b_text_document.idx");
  test::for_random_cases(100, [&](uint64_t number) {
    std::mt19937_64 random(number);
    std::string damaged = index;
    for (uint64_t i = random() % 4; i < 4; ++i) {
      const size_t end = random() % 2 == 0 ? 34 : damaged.size();
      damaged[random() % end] = static_cast<char>(random());
    }
    if (random() % 4 == 0) damaged.resize(random() % (damaged.size() + 9));
    const auto memory = test::corpora();
    memory->put("corpus_b_text_document.idx", damaged);
    DataOptions options = test::options_of({{"data_path", {test::kCorpusB}}});
    options.token_limit = 251;
    try {
      const auto datasets = open_datasets(memory, options);
      Sample sample;
      for (const DataSplit split : kSplits) {
        if (!datasets[split]) continue;
        for (int64_t i = 0; i < datasets[split]->size(); ++i) datasets[split]->read(i, sample);
      }
    } catch (const Error&) {
    }
  });
}

}  // namespace
}  // namespace ferry
