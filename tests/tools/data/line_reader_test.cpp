// Pieces of lines: whatever their size and however a text is divided, every line is given once.
#include "tools/data/tokenize/line_reader.h"

#include <gmock/gmock.h>

#include <random>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "tests/random_cases.h"

namespace ferry::tool {
namespace {

using testing::HasSubstr;

class Texts {
 public:
  void add(const std::string& path, const std::string& text,
           TextFormat format = TextFormat::json_lines) {
    write_file(*files_, path, text);
    inputs_.push_back({.path = path,
                       .format = format,
                       .can_seek = true,
                       .is_file = true,
                       .bytes = text.size(),
                       .changed_seconds = 0});
  }

  std::vector<TextPiece> read(const Part& part, const LineReaderOptions& options = {},
                              const TextPosition& from = {}) const {
    std::atomic<uint64_t> count{0};
    std::atomic<bool> stop{false};
    LineReader reader(files_, inputs_, ranges_of(inputs_, part), options, from, count, stop);
    std::vector<TextPiece> pieces;
    for (TextPiece piece; reader.next(piece);) pieces.push_back(std::move(piece));
    return pieces;
  }

 private:
  std::shared_ptr<const FileSystem> files_ = std::make_shared<MemoryFileSystem>();
  std::vector<TextInput> inputs_;
};

std::string joined(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

TEST(LineReader, EveryLineIsGivenOnce) {
  test::for_random_cases(200, [](uint64_t number) {
    std::mt19937 generator(static_cast<uint32_t>(number));
    const auto between = [&](int low, int high) {
      return low + static_cast<int>(generator() % static_cast<uint32_t>(high - low + 1));
    };
    Texts texts;
    std::string all;
    for (int file = 0; file < 3; ++file) {
      std::string text;
      const int lines = between(0, 40);
      for (int i = 0; i < lines; ++i) {
        text += std::string(static_cast<size_t>(between(0, 30)), 'a') + "\n";
      }
      if (between(0, 1) == 1) text += "unended";
      texts.add("f" + std::to_string(file), text);
      all += text;
    }
    const LineReaderOptions options{1 << 20, static_cast<uint64_t>(between(1, 100))};
    const int parts = between(1, 12);
    std::string found;
    for (int k = 0; k < parts; ++k) found += joined(texts.read({k, parts}, options));
    EXPECT_EQ(found, all);
    // What was read before a position and after it is everything.
    const std::vector<TextPiece> pieces = texts.read({}, options);
    std::string before;
    for (const TextPiece& piece : pieces) {
      before += piece.text;
      EXPECT_EQ(before + joined(texts.read({}, options, piece.end)), all);
    }
  });
}

TEST(LineReader, RefusesLinesThatAreTooLong) {
  Texts texts;
  texts.add("a", "short\n" + std::string(1 << 20, 'x') + "\nshort\n");
  try {
    texts.read({}, {999, 10});
    ADD_FAILURE() << "a line of 1 MiB was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::exhausted);
    EXPECT_THAT(error.what(), HasSubstr("the line from byte 6 on has more than 999 B"));
  }
}

TEST(LineReader, AFileMayBeADocument) {
  Texts texts;
  texts.add("a", "two\nlines", TextFormat::text);
  texts.add("empty", "", TextFormat::text);
  texts.add("b", "\xEF\xBB\xBFmarked", TextFormat::text);
  const std::vector<TextPiece> pieces = texts.read({});
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].text, "two\nlines");
  EXPECT_EQ(pieces[1].text, "");
  EXPECT_EQ(pieces[2].text, "marked");
  EXPECT_TRUE(pieces[2].is_document);
}

}  // namespace
}  // namespace ferry::tool
