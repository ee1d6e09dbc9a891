#include "text/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

using testing::ElementsAre;

TEST(ByteTokenizer, EveryByteIsAToken) {
  const auto tokenizer = open_tokenizer(*posix_file_system(), {.type = "bytes"});
  std::vector<int32_t> ids{7};
  tokenizer->encode(std::string_view("a\xff\0", 3), ids);
  EXPECT_THAT(ids, ElementsAre(7, 97, 255, 0));
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
}

TEST(ByteTokenizer, TextComesBack) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{104, 256, 105, -1, 1000}), "hi");
}

TEST(OpenTokenizer, NamesAnUnknownType) {
  try {
    open_tokenizer(*posix_file_system(), {.type = "BertWordPieceCase"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_THAT(error.what(), testing::HasSubstr("BertWordPieceCase"));
  }
}

}  // namespace
}  // namespace ferry
