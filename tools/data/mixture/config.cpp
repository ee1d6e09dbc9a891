#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "tools/data/commands.h"
#include "tools/data/mixture/token_folders.h"
#include "tools/data/mixture/weights.h"
#include "tools/data/token_files.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "trainer/data/samples/index_cache.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr const char* kConfigExamples = R"(Examples:
  ferry data config data/web,data/books             prefixes for --data-path, by name
  ferry data config data/web data/books --weights 0.7 0.3
  ferry train --data-path $(ferry data config data/web) ...

A weight is divided over the prefixes of its path by their tokens.
)";

struct ConfigFlags {
  std::vector<std::string> paths, weights;
  bool lines = false, json = false;
};

struct ListedPair {
  std::string prefix;
  int64_t documents = 0, tokens = 0;
  std::optional<double> weight;
};

// "a,b" is two paths, as create_data_config.py takes them, unless it is there.
std::vector<std::string> divided(const std::vector<std::string>& words) {
  std::vector<std::string> paths;
  for (const std::string& word : words) {
    if (posix_file_system()->status(word).kind != PathKind::missing) {
      paths.push_back(word);
      continue;
    }
    for (size_t begin = 0; begin <= word.size();) {
      const size_t end = std::min(word.find(',', begin), word.size());
      std::string path = word.substr(begin, end - begin);
      path.erase(0, path.find_first_not_of(' '));
      path.erase(path.find_last_not_of(' ') + 1);
      if (!path.empty()) paths.push_back(path);
      begin = end + 1;
    }
  }
  return paths;
}

// A folder's pairs, or the pair that a path names itself.
std::vector<std::string> prefixes_at(const std::string& path) {
  const auto kind = [](const std::string& of) { return posix_file_system()->status(of).kind; };
  if (kind(prefix_of(path) + ".idx") == PathKind::file) return {prefix_of(path)};
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  std::vector<std::string> prefixes;
  for (const std::string& prefix : pairs_below(folder, FolderLinks::pass_over)) {
    prefixes.push_back(join(folder, prefix));
  }
  return prefixes;
}

std::vector<ListedPair> listed_pairs(const ConfigFlags& flags) {
  const std::vector<std::string> paths = divided(flags.paths);
  if (paths.empty()) fail(ErrorKind::invalid, "the paths are empty; give prefixes or folders");
  std::vector<double> weights;
  if (!flags.weights.empty()) weights = parse_weights(flags.weights, paths.size(), "paths");
  std::vector<ListedPair> pairs;
  for (size_t k = 0; k < paths.size(); ++k) {
    const size_t first = pairs.size();
    int64_t tokens = 0;
    for (const std::string& prefix : prefixes_at(paths[k])) {
      const auto dataset = open_tokens(prefix);
      pairs.push_back({prefix, dataset->documents(), count_all_tokens(*dataset), {}});
      tokens += pairs.back().tokens;
    }
    if (weights.empty()) continue;
    if (tokens == 0) {
      fail(ErrorKind::invalid, "{} has a weight and no token; leave it out", paths[k]);
    }
    for (size_t i = first; i < pairs.size(); ++i) {
      pairs[i].weight =
          weights[k] * static_cast<double>(pairs[i].tokens) / static_cast<double>(tokens);
    }
  }
  // A weight has to be positive: what has no token has no part.
  if (!weights.empty()) {
    std::erase_if(pairs, [](const ListedPair& pair) { return pair.tokens == 0; });
  }
  return pairs;
}

std::string to_text(const std::vector<ListedPair>& pairs, bool lines) {
  std::string text;
  for (const ListedPair& pair : pairs) {
    if (!lines && pair.prefix.find_first_of(" \t\n") != std::string::npos) {
      fail(ErrorKind::invalid,
           "'{}' has a blank, which would divide it on a command line; give it another name, or "
           "take --lines or --json",
           printable(pair.prefix));
    }
    if (!text.empty()) text += lines ? "\n" : " ";
    if (pair.weight) text += number(*pair.weight) + " ";
    text += pair.prefix;
  }
  return text + "\n";
}

json to_json(const std::vector<ListedPair>& pairs) {
  json list = json::array();
  int64_t tokens = 0;
  for (const ListedPair& pair : pairs) {
    list.push_back({{"prefix", pair.prefix},
                    {"documents", pair.documents},
                    {"tokens", pair.tokens},
                    {"weight", pair.weight ? json(*pair.weight) : json(nullptr)}});
    tokens += pair.tokens;
  }
  return {{"datasets", list}, {"tokens", tokens}};
}

}  // namespace

void add_config_data(Command& data) {
  auto flags = std::make_shared<ConfigFlags>();
  Command command =
      data.add_command("config", "List the token files of folders, as --data-path takes them");
  command
      .add_option("PATH", flags->paths,
                  "Folders of token files, at any depth, or prefixes; may be separated by commas")
      .required()
      .type_name("");
  command.add_option("--weights", flags->weights, "Weight of each path in the blend")
      .type_name("W");
  command.add_flag("--lines", flags->lines, "Print one prefix per line");
  add_json_option(command, flags->json);
  command.footer(kConfigExamples);
  command.action([flags] {
    const std::vector<ListedPair> pairs = listed_pairs(*flags);
    print(flags->json ? json_text(to_json(pairs)) : to_text(pairs, flags->lines));
  });
}

}  // namespace ferry::tool
