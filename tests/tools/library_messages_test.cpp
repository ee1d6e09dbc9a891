// Messages of the libraries name options and not flags: the program spells them (terminal/flags.h).
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/tools/program.h"
#include "tools/terminal/flags.h"
#include "trainer/arguments/argument_row.h"

namespace ferry::tool {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::set<std::string> flags_in(const std::string& text) {
  static const std::regex flag("--[a-z][a-z0-9-]*");
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), flag), end; match != end; ++match) {
    found.insert(match->str());
  }
  return found;
}

// What stands in quotes, comments left out.
std::string literals_of(const fs::path& file) {
  static const std::regex literal("\"(?:[^\"\\\\]|\\\\.)*\"");
  std::istringstream lines(text_of(file));
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(' ') != std::string::npos &&
        line.find("//") == line.find_first_not_of(' ')) {
      continue;
    }
    for (std::sregex_iterator match(line.begin(), line.end(), literal), end; match != end;
         ++match) {
      all += match->str() + "\n";
    }
  }
  return all;
}

struct LibraryMessages : test::Program {
  // The flags of the commands that the library has functions for, without those that Megatron-LM
  // calls the same: its arguments are the same words for everybody.
  std::set<std::string> flags() const {
    std::set<std::string> all;
    for (const char* command :
         {"convert", "reshard", "verify", "seal", "diff", "prune", "inspect", "estimate"}) {
      all.merge(flags_in(ferry(std::string(command) + " --help").out));
    }
    for (const ArgumentRow& row : argument_rows()) all.erase(std::string(row.flag()));
    all.insert("--optimizer");
    return all;
  }
};

TEST_F(LibraryMessages, NameNoFlags) {
  const fs::path root = fs::path(FERRY_FIXTURES).parent_path().parent_path();
  const std::set<std::string> flags = this->flags();
  ASSERT_TRUE(flags.contains("--tp") && flags.contains("--max-shard-size"));
  int files = 0;
  for (const char* part : {"ops", "estimate"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / part)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".h") continue;
      ++files;
      for (const std::string& flag : flags_in(literals_of(entry.path()))) {
        EXPECT_FALSE(flags.contains(flag)) << entry.path() << " names " << flag;
      }
    }
  }
  EXPECT_GT(files, 40);
}

TEST(LibraryMessagesInFlags, AreSpelledAsOnTheCommandLine) {
  EXPECT_EQ(in_flags(std::string_view("options.optimizer=none writes the model")),
            "--optimizer none writes the model");
  EXPECT_EQ(in_flags(std::string_view("see options.max_shard_bytes (options.to=hugging_face)")),
            "see --max-shard-size (--to hf)");
  EXPECT_EQ(in_flags(std::string_view("a/my.options.only.safetensors")),
            "a/my.options.only.safetensors");
}

}  // namespace
}  // namespace ferry::tool
