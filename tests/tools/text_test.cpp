#include "tools/terminal/text.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "tools/terminal/progress.h"

namespace ferry::tool {
namespace {

TEST(NearestWord, IsAMisspellingOrABeginning) {
  const std::vector<std::string> words = {"help", "diff", "convert", "completion"};
  EXPECT_EQ(nearest_word("hlep", words), "help");  // two letters swapped are one mistake
  EXPECT_EQ(nearest_word("hepl", words), "help");
  EXPECT_EQ(nearest_word("HELP", words), "help");
  EXPECT_EQ(nearest_word("conv", words), "convert");
  EXPECT_EQ(nearest_word("co", words), "");
  EXPECT_EQ(nearest_word("xyzzy", words), "");
  EXPECT_EQ(nearest_word("con", {"convert", "conclude"}), "");
}

TEST(ProgressLine, IsCutToTheTerminal) {
  EXPECT_EQ(cut_to_width("reading  50%", 80), "reading  50%");
  EXPECT_EQ(cut_to_width("reading  50%", 13), "reading  50%");
  EXPECT_EQ(cut_to_width("reading  50%", 12), "reading  50");
  EXPECT_EQ(cut_to_width("reading  50%", 0), "reading  50%");
}

TEST(ProgressLine, IsALineOfItsOwnWhereItCannotBeWrittenInPlace) {
  using enum ProgressManner;
  EXPECT_EQ(progress_manner(true, "xterm-256color", false), in_place);
  EXPECT_EQ(progress_manner(true, "dumb", false), line_by_line);
  EXPECT_EQ(progress_manner(true, nullptr, false), line_by_line);
  EXPECT_EQ(progress_manner(false, "xterm", false), silent);
  EXPECT_EQ(progress_manner(false, "xterm", true), line_by_line);
}

TEST(ProgressLine, IsShownTenTimesASecondOrEveryHalfMinute) {
  using enum ProgressManner;
  EXPECT_FALSE(is_progress_due(in_place, 0.9, 0));
  EXPECT_TRUE(is_progress_due(in_place, 1.0, 0));
  EXPECT_FALSE(is_progress_due(in_place, 1.05, 1.0));
  EXPECT_TRUE(is_progress_due(in_place, 1.15, 1.0));
  EXPECT_FALSE(is_progress_due(line_by_line, 29.9, 0));
  EXPECT_TRUE(is_progress_due(line_by_line, 30, 0));
  EXPECT_FALSE(is_progress_due(line_by_line, 59, 30));
  EXPECT_TRUE(is_progress_due(line_by_line, 60, 30));
  EXPECT_FALSE(is_progress_due(silent, 1000, 0));
}

TEST(Text, GroupsDigits) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(-1000), "-1,000");
  EXPECT_EQ(grouped(-100), "-100");
}

TEST(Text, RoundsToThreeDigits) {
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.00 kB");
  EXPECT_EQ(human_bytes(129456), "129 kB");
  EXPECT_EQ(human_bytes(999'499), "999 kB");
  EXPECT_EQ(human_bytes(999'999), "1.00 MB");
  EXPECT_EQ(human_bytes(16'060'000'000), "16.1 GB");
  EXPECT_EQ(human_bytes(UINT64_MAX), "18.4 EB");
  EXPECT_EQ(human_count(62368), "62,368");
  EXPECT_EQ(human_count(8'030'261'248), "8.03 billion");
  EXPECT_EQ(human_seconds(0.421), "0.42 s");
  EXPECT_EQ(human_seconds(59.7), "1 min 0 s");
  EXPECT_EQ(human_seconds(7380), "2 h 3 min");
}

TEST(Text, ReadsSizes) {
  EXPECT_EQ(parse_memory("8MiB"), uint64_t{8} << 20);
  EXPECT_THROW(parse_memory("8191KiB"), Error);
  EXPECT_EQ(parse_size("4096", "--memory"), 4096u);
  EXPECT_EQ(parse_size("5GB", "--memory"), 5'000'000'000u);
  EXPECT_EQ(parse_size("512MiB", "--memory"), uint64_t{512} << 20);
  EXPECT_EQ(parse_size("1.5kb", "--memory"), 1500u);
  EXPECT_EQ(parse_size("0", "--memory"), 0u);
  for (const char* bad : {"", "GB", "5G", "-1", "1e9", "1.5", "1..5kB", "5 GB", "0x10", "10EB",
                          "99999999999999999999", "9999999TB", "nan", "5GBs"}) {
    try {
      parse_size(bad, "--memory");
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      EXPECT_THAT(error.what(), testing::HasSubstr("--memory"));
    }
  }
}

TEST(Text, MakesNamesSafeToPrint) {
  EXPECT_EQ(printable("layers.0.weight"), "layers.0.weight");
  EXPECT_EQ(printable("\x1b[31mred\r\n\t\x7f"), "\\x1b[31mred\\x0d\\n\\x09\\x7f");
  EXPECT_EQ(printable("a\nb", true), "a\nb");
  EXPECT_EQ(printable("m\u00f6del \u6a21"), "m\u00f6del \u6a21");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xe6\xa8"), "\\xe6\\xa8");
  EXPECT_EQ(printable("a\u202eb\u0085"), "a\\u202eb\\u0085");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Text, QuotesForAShell) {
  EXPECT_EQ(shell_word("runs/a-1"), "runs/a-1");
  EXPECT_EQ(shell_word("Et*2|t*2L"), "'Et*2|t*2L'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Text, AlignsTables) {
  EXPECT_EQ(table({{"a", "1"}, {"m\u00f6d", "100"}, {"x"}}, {false, true}, "  "),
            "  a      1\n  m\u00f6d  100\n  x\n");
}

TEST(Glob, MatchesAsShellsDo) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("*.weight", "decoder.layers.weight"));
  EXPECT_FALSE(glob_matches("*.weight", "decoder.layers.bias"));
  EXPECT_TRUE(glob_matches("*layers.?.mlp*", "model.layers.3.mlp.up"));
  EXPECT_FALSE(glob_matches("*layers.?.mlp*", "model.layers.13.mlp.up"));
  EXPECT_TRUE(glob_matches("a[0-3].w", "a2.w"));
  EXPECT_FALSE(glob_matches("a[!0-3].w", "a2.w"));
  EXPECT_TRUE(glob_matches("a[]x].w", "a].w"));
  EXPECT_TRUE(glob_matches("a[", "a["));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("a?", "a"));
  EXPECT_TRUE(glob_matches("**a**", "bab"));
}

TEST(Glob, IsNotExponential) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(glob_matches(pattern + "b", std::string(10'000, 'a')));
}

TEST(Progress, SaysHowFarAndHowLong) {
  EXPECT_EQ(progress_line({250'000'000, 1'000'000'000}, 2),
            " 25%  250 MB of 1.00 GB  125 MB/s  6.00 s left");
  EXPECT_EQ(progress_line({10, 10}, 2), "100%  10 B of 10 B  5 B/s");
  EXPECT_EQ(progress_line({0, 0}, 0), "100%  0 B of 0 B");
}

TEST(Text, CompressionIsALevel) {
  EXPECT_EQ(parse_compression("zstd"), 3);
  EXPECT_EQ(parse_compression("zstd:1"), 1);
  EXPECT_EQ(parse_compression("zstd:19"), 19);
  for (const char* text :
       {"", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "zstd:3x", "zstd3", "gzip"}) {
    EXPECT_THROW(parse_compression(text), Error) << text;
  }
}

}  // namespace
}  // namespace ferry::tool
