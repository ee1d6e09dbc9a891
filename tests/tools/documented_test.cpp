// docs/ and --help have the same options and exit codes, and links in docs/ lead somewhere.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/tools/program.h"
#include "tools/terminal/exit_code.h"

namespace {

namespace fs = std::filesystem;
using ferry::test::Program;
using Names = std::set<std::string>;

std::string document(const std::string& name) {
  return Program::read(std::string(FERRY_FIXTURES) + "/../../docs/" + name);
}

// From the heading to the next of its level.
std::string section(const std::string& text, const std::string& heading) {
  const size_t begin = text.find("\n## " + heading + "\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find("\n## ", begin + 1) - begin);
}

Names names_in(const std::string& text) {
  static const std::regex kName("--?[a-z][a-z-]*");
  Names names;
  for (std::sregex_iterator at(text.begin(), text.end(), kName), end; at != end; ++at) {
    names.insert(at->str());
  }
  return names;
}

// The options of a table: what its rows have in their first cells.
Names documented(const std::string& section) {
  Names names;
  std::istringstream lines(section);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("| `-")) names.merge(names_in(line.substr(0, line.find(" | "))));
  }
  return names;
}

// Each option's names: "-q,--quiet".
std::vector<Names> helped(const std::string& help) {
  std::vector<Names> options;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  -")) options.push_back(names_in(line.substr(0, line.find(' ', 2))));
  }
  return options;
}

TEST_F(Program, FamiliesAreDocumentedAsTheyArePrinted) {
  const std::string table = ferry("help families --markdown").out;
  EXPECT_NE(table.find("| `llama` | LlamaForCausalLM | Megatron-LM |"), table.npos);
  EXPECT_NE(document("families.md").find(table), std::string::npos)
      << "replace the table of docs/families.md by what ferry help families --markdown prints";
}

TEST_F(Program, EveryOptionIsInTheDocuments) {
  const std::string commands = document("commands.md");
  EXPECT_THAT(commands, testing::HasSubstr("\n## ferry launch\n"));
  for (const std::string kind : {"slurm", "local", "kubernetes"}) {
    for (const Names& names : helped(ferry("launch " + kind + " --help").out)) {
      EXPECT_THAT(section(commands, "ferry launch"), testing::HasSubstr("`" + *names.rbegin()));
    }
  }
  for (const std::string command :
       {"inspect",     "convert",      "reshard",       "verify",     "check",       "diff",
        "prune",       "report",       "estimate",      "runs list",  "runs follow", "runs compare",
        "runs export", "runs copy",    "data tokenize", "data show",  "data mix",    "data config",
        "data dumps",  "data inspect", "data check",    "data merge", "data bytes"}) {
    const Names in_document = documented(section(commands, "ferry " + command));
    const std::vector<Names> in_help = helped(ferry(command + " --help").out);
    EXPECT_GE(in_help.size(), 2u) << command;
    Names known;
    for (const Names& names : in_help) {
      known.insert(names.begin(), names.end());
      EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                              [&](const std::string& name) { return in_document.count(name); }))
          << command << " " << *names.begin() << " is not in docs/commands.md";
    }
    for (const std::string& name : in_document) {
      EXPECT_TRUE(known.count(name)) << command << " --help knows no " << name;
    }
  }
}

// The anchors that GitHub makes of a page's headings: of equal ones the second ends in -1.
Names anchors(const std::string& page) {
  Names found;
  std::map<std::string, int> times;
  std::istringstream lines(page);
  bool is_code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) is_code = !is_code;
    if (is_code || !line.starts_with('#')) continue;
    std::string anchor;
    for (const char c : line.substr(std::min(line.size(), line.find(' ') + 1))) {
      const auto letter = static_cast<unsigned char>(c);
      if (std::isalnum(letter) || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(letter));
      } else if (c == ' ') {
        anchor += '-';
      }
    }
    const int before = times[anchor]++;
    found.insert(before == 0 ? anchor : fmt::format("{}-{}", anchor, before));
  }
  return found;
}

TEST(Documents, HaveLinksThatLeadSomewhere) {
  const fs::path tree = fs::path(FERRY_FIXTURES) / "../..";
  std::vector<fs::path> pages = {tree / "README.md", tree / "CONTRIBUTING.md"};
  for (const auto& item : fs::recursive_directory_iterator(tree / "docs")) {
    if (item.path().extension() == ".md") pages.push_back(item.path());
  }
  static const std::regex kLink(R"(\]\(([^)\s#]*)(#([^)\s]*))?\))");
  for (const fs::path& page : pages) {
    const std::string text = Program::read(page);
    for (std::sregex_iterator at(text.begin(), text.end(), kLink), end; at != end; ++at) {
      const std::string to = (*at)[1], anchor = (*at)[3];
      if (to.starts_with("http")) continue;
      const fs::path other = to.empty() ? page : page.parent_path() / to;
      ASSERT_TRUE(fs::exists(other)) << page << " has a link to " << to;
      if (anchor.empty()) continue;
      EXPECT_TRUE(anchors(Program::read(other)).contains(anchor))
          << page << " has a link to " << to << "#" << anchor;
    }
  }
}

TEST(ExitCodes, AreInTheDocuments) {
  const std::string commands = section(document("commands.md"), "Exit codes");
  const std::string errors = document("errors.md");
  static const std::regex kRow(" +([0-9]+)  ([a-z ]+)[:\n]");
  const std::string help = ferry::tool::exit_code_help();
  for (std::sregex_iterator at(help.begin(), help.end(), kRow), end; at != end; ++at) {
    const std::string code = at->str(1), kind = at->str(2);
    EXPECT_THAT(commands, testing::HasSubstr("\n| " + code + " | ")) << kind;
    if (code == "0") continue;
    EXPECT_THAT(errors, testing::ContainsRegex("\n## " + code + "[,:]")) << kind;
  }
}

}  // namespace
