// Messages of the libraries name options and not flags: the program spells them (terminal/flags.h).
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "ckpt/base/error.h"
#include "tests/tools/program.h"
#include "tools/terminal/flags.h"
#include "trainer/arguments/argument_row.h"

namespace ferry::tool {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

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
    for (const char* command : {"convert", "reshard", "verify", "check", "seal", "diff", "prune",
                                "inspect", "estimate"}) {
      all.merge(flags_in(ferry(std::string(command) + " --help").out));
    }
    for (const ArgumentRow& row : argument_rows()) all.erase(std::string(row.flag()));
    all.insert("--optimizer");
    return all;
  }

  // A Hugging Face model without tokenizer files.
  std::string model() const {
    const std::string source = std::string(FERRY_FIXTURES) + "/megatron/llama_tp2dp2_dpr";
    EXPECT_EQ(ferry("convert " + source + " " + path("model") + " --to hf").code, 0);
    return path("model");
  }
};

TEST_F(LibraryMessages, NameNoFlags) {
  const fs::path root = fs::path(FERRY_FIXTURES).parent_path().parent_path();
  const std::set<std::string> flags = this->flags();
  ASSERT_TRUE(flags.contains("--tp") && flags.contains("--max-shard-size"));
  int files = 0;
  for (const char* part : {"ckpt", "convert", "ops", "estimate"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / part)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cpp" && extension != ".h") continue;
      ++files;
      for (const std::string& flag : flags_in(literals_of(entry.path()))) {
        EXPECT_FALSE(flags.contains(flag)) << entry.path() << " names " << flag;
      }
    }
  }
  EXPECT_GT(files, 600);
}

// option("name") of the sources; flags of the commands' help.
TEST_F(LibraryMessages, NameOptionsThatTheProgramHas) {
  static const std::regex call("option\\(\"([a-z_0-9]+)\"(?:, \"([a-z_0-9]+)\"\\))?");
  const fs::path root = fs::path(FERRY_FIXTURES).parent_path().parent_path();
  std::string help;
  for (const char* command :
       {"convert", "reshard", "verify", "check", "seal", "diff", "prune", "inspect", "estimate"}) {
    help += ferry(std::string(command) + " --help").out;
  }
  const std::set<std::string> flags = flags_in(help);
  // A TensorStream's, which no command has.
  const std::set<std::string> of_streams = {"rank", "ranks", "memory_bytes"};
  std::set<std::string> seen;
  for (const char* part : {"ckpt", "convert", "ops", "estimate"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / part)) {
      if (entry.path().extension() != ".cpp") continue;
      const std::string text = text_of(entry.path());
      for (std::sregex_iterator match(text.begin(), text.end(), call), end; match != end; ++match) {
        const std::string spelled = in_flags(fmt::to_string(option((*match)[1].str())));
        seen.insert((*match)[1].str());
        if (spelled == "a layout" || of_streams.contains((*match)[1].str())) continue;
        EXPECT_THAT(flags, testing::Contains(spelled.substr(0, spelled.find(' '))))
            << entry.path() << " names " << (*match)[1].str();
      }
    }
  }
  EXPECT_GT(seen.size(), 30U);
}

// Each way out of the program: a report's notes, --json, an error.
TEST_F(LibraryMessages, AreSpelledWhereverTheyAreShown) {
  const std::string from = std::string(FERRY_FIXTURES) + "/megatron/llama_tp2dp2_dpr ";
  const std::string note = "no tokenizer files; --tokenizer DIR copies them";
  EXPECT_THAT(ferry("convert " + from + path("text") + " --to hf").out, HasSubstr(note));
  EXPECT_THAT(ferry("convert " + from + path("json") + " --to hf --json").out, HasSubstr(note));
  const std::string whole = model();
  const test::Outcome estimate = ferry("estimate --json " + whole);
  EXPECT_THAT(estimate.out, HasSubstr("--tokenizer DIR")) << estimate.err;
  const test::Outcome refused = ferry("inspect --json --iteration 5 " + whole);
  EXPECT_THAT(refused.out, HasSubstr("\"message\": \"--iteration 5 chooses from a run folder"));
  EXPECT_THAT(refused.err, HasSubstr("ferry: error: --iteration 5 chooses from a run folder"));
  const std::string shifted = std::string(FERRY_FIXTURES) + "/megatron_shifted/tp2";
  for (const char* command : {"inspect ", "inspect --json "}) {
    std::string out = ferry(command + shifted).out;
    std::replace(out.begin(), out.end(), '\n', ' ');
    EXPECT_THAT(out, HasSubstr("--repair-masters")) << command;
  }
}

TEST(LibraryMessagesInFlags, AreSpelledAsOnTheCommandLine) {
  EXPECT_EQ(in_flags(std::string_view("options.optimizer=none writes the model")),
            "--optimizer none writes the model");
  EXPECT_EQ(in_flags(std::string_view("see options.max_shard_bytes (options.to=hugging_face)")),
            "see --max-shard-size (--to hf)");
  EXPECT_EQ(in_flags("for options.pipeline, 2 fits; options.tensor=-1: too small"),
            "for --pp, 2 fits; --tp -1: too small");
  EXPECT_EQ(in_flags(fmt::format("choose one ({})", option("only", "model.*"))),
            "choose one (--only 'model.*')");
  EXPECT_EQ(in_flags(fmt::format("{} has no match", option("renames", "it's=x"))),
            "--rename 'it'\\''s=x' has no match");
  EXPECT_EQ(in_flags("options.only='model.* is cut"), "--only='model.* is cut");
  EXPECT_EQ(in_flags(std::string_view("a/my.options.only.safetensors")),
            "a/my.options.only.safetensors");
}

}  // namespace
}  // namespace ferry::tool
