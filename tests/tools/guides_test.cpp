// Guides cannot go stale unseen: what they show of the program is what it prints, and commands have
// the options with which they stand there.
#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/tools/program.h"

namespace {

using ferry::test::Outcome;
using ferry::test::Program;
namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

const fs::path kTree = fs::path(FERRY_FIXTURES) / "../..";

std::vector<fs::path> pages() {
  std::vector<fs::path> found = {"README.md", "CONTRIBUTING.md", "tests/gpu/README.md"};
  for (const auto& entry : fs::directory_iterator(kTree / "docs")) {
    if (entry.path().extension() == ".md") found.push_back("docs" / entry.path().filename());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Lines of a page's code blocks, without indentation, with an empty line between blocks.
Lines code_of(const fs::path& page) {
  std::istringstream in(Program::read(kTree / page));
  Lines lines;
  for (std::string line; std::getline(in, line);) {
    const bool is_code = line.starts_with("    ");
    if (is_code && !lines.empty() && lines.back().ends_with('\\')) {
      lines.back().replace(lines.back().size() - 1, 1, line.substr(4));
    } else {
      lines.push_back(is_code ? line.substr(4) : line.empty() ? "" : "#");
    }
  }
  return lines;
}

Lines words_of_line(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

Lines lines_of(const std::string& text) {
  std::istringstream in(text);
  Lines lines;
  // Times are another run's.
  static const std::regex kTime(R"( in [0-9.]+ m?s( \([^)]*/s\))?$|("seconds": )[0-9.e-]+)");
  for (std::string line; std::getline(in, line);) {
    line = std::regex_replace(line, kTime, "$2");
    lines.push_back(line.erase(line.find_last_not_of(' ') + 1));
  }
  return lines;
}

// A line "..." stands for any lines.
bool match(const Lines& shown, size_t i, const Lines& printed, size_t k) {
  if (i == shown.size()) return k == printed.size();
  if (shown[i].ends_with("...") && shown[i].find_first_not_of(' ') == shown[i].size() - 3) {
    for (size_t end = k; end <= printed.size(); ++end) {
      if (match(shown, i + 1, printed, end)) return true;
    }
    return false;
  }
  return k < printed.size() && shown[i] == printed[k] && match(shown, i + 1, printed, k + 1);
}

struct Guides : Program {
  // A folder with what examples read, and one for their runs.
  void enter_tree(const std::string& name) {
    tree_ = folder / name;
    fs::create_directories(tree_ / "runs");
    for (const char* part : {"tests", "examples"}) {
      fs::create_directory_symlink(fs::absolute(kTree / part), tree_ / part);
    }
  }

  // What the line prints there, notes and errors too.
  std::string printed(const std::string& line) const {
    const std::string command = "cd " + tree_.string() +
                                " && ferry() { " FERRY_PROGRAM " \"$@\"; } && { " + line +
                                "; } 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::string text;
    for (int c; (c = std::fgetc(pipe)) != EOF;) text.push_back(static_cast<char>(c));
    ::pclose(pipe);
    return text;
  }

  // Whether it reads what is there: not a made-up run, nor what a page says was done by hand (#).
  bool can_be_run(const std::string& line) const {
    if (line.find('#') != std::string::npos) return false;
    const Lines words = words_of_line(line);
    return std::any_of(words.begin() + 1, words.end(), [&](const std::string& word) {
      return word.front() != '/' && fs::exists(tree_ / word);
    });
  }

  // By the help of the command that the words begin with; none of one that there is not.
  const std::set<std::string>& options_of(const Lines& words) {
    std::string name = words.at(0);
    if ((name == "data" || name == "runs" || name == "launch") && words.size() > 1) {
      name += " " + words[1].substr(0, words[1].find('|'));
    }
    if (const auto known = options_.find(name); known != options_.end()) return known->second;
    std::set<std::string>& options = options_[name];
    static const std::regex kOption("\n  (-[^ \n]*)");
    const std::string help = ferry(name + " --help").out;
    for (std::sregex_iterator at(help.begin(), help.end(), kOption), end; at != end; ++at) {
      std::istringstream names(at->str(1));
      for (std::string one; std::getline(names, one, ',');) options.insert(one);
    }
    return options;
  }

  fs::path tree_;
  std::map<std::string, std::set<std::string>> options_;
};

TEST_F(Guides, ShowWhatIsPrinted) {
  int compared = 0;
  for (const fs::path& page : pages()) {
    enter_tree("of-" + page.string());
    const Lines code = code_of(page);
    for (size_t i = 0; i < code.size(); ++i) {
      if (!code[i].starts_with("$ ferry ") || !can_be_run(code[i].substr(2))) continue;
      const std::string line = code[i].substr(2);
      std::string shown;
      while (i + 1 < code.size() && !code[i + 1].starts_with("$ ") && code[i + 1] != "#") {
        shown += code[++i] + "\n";
      }
      shown.erase(shown.find_last_not_of('\n') + 1);
      const std::string text = printed(line);
      EXPECT_TRUE(match(lines_of(shown), 0, lines_of(text), 0))
          << page << ": " << line << "\nprints\n"
          << text;
      ++compared;
    }
  }
  EXPECT_GE(compared, 9);
}

TEST_F(Guides, HaveCommandsWithOptionsThatThereAre) {
  static const std::regex kCommand(R"((^|[ /(])ferry ([a-z][^|;#>&)]*))");
  int looked_at = 0;
  for (const fs::path& page : pages()) {
    for (const std::string& line : code_of(page)) {
      for (std::sregex_iterator at(line.begin(), line.end(), kCommand), end; at != end; ++at) {
        const Lines words = words_of_line(at->str(2));
        const std::set<std::string>& options = options_of(words);
        for (const std::string& word : words) {
          if (word == "--" || options.empty()) break;  // of another program; a sentence
          if (word.front() != '-' || word.size() < 2) continue;
          const std::string name = word.substr(0, word.find_first_of("=\"'"));
          EXPECT_TRUE(options.count(name)) << page << ": " << line << "\nhas no " << name;
          ++looked_at;
        }
      }
    }
  }
  EXPECT_GE(looked_at, 100);
}

TEST_F(Guides, HaveConfigurationsThatLaunch) {
  const Lines code = code_of("docs/launch.md");
  int launched = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    if (!code[i].starts_with("preset: ")) continue;
    std::string yaml;
    for (; i < code.size() && !code[i].empty() && code[i] != "#"; ++i) yaml += code[i] + "\n";
    write(path("run.yaml"), yaml);
    const bool is_slurm = yaml.find("kubernetes:") == std::string::npos;
    const Outcome outcome = ferry(std::string("launch ") + (is_slurm ? "slurm" : "kubernetes") +
                                  " --print " + path("run.yaml"));
    EXPECT_EQ(outcome.code, 0) << yaml << outcome.err;
    ++launched;
  }
  EXPECT_EQ(launched, 2);
}

}  // namespace
