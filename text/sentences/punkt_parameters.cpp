#include "text/sentences/punkt_parameters.h"

#include <charconv>

#include "ckpt/base/error.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

constexpr uint64_t kLargestPunktFile = 256 << 20;  // bytes

// Calls `take` with each line of a file.
template <typename Take>
void for_each_line(const FileSystem& file_system, const std::string& path, const Take& take) {
  const std::string text = read_file(file_system, path, kLargestPunktFile);
  if (unicode::well_formed_prefix(text) != text.size()) {
    fail(ErrorKind::corrupt, "{} is not UTF-8, as files of punkt_tab are", path);
  }
  std::string_view rest = text;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    std::string_view one = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (one.ends_with('\r')) one.remove_suffix(1);
    take(one, line);
  }
}

std::pair<std::string_view, std::string_view> two_fields(const std::string& path,
                                                         std::string_view line, int64_t number) {
  const size_t tab = line.find('\t');
  if (tab == std::string_view::npos || line.find('\t', tab + 1) != std::string_view::npos) {
    fail(ErrorKind::corrupt, "{}, line {}: it has not two fields with a tab between", path, number);
  }
  return {line.substr(0, tab), line.substr(tab + 1)};
}

}  // namespace

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  characters.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const unicode::Character one = unicode::character_at(text.data() + at);
    characters += one.point;
    at += one.bytes;
  }
  return characters;
}

PunktParameters read_punkt_parameters(const FileSystem& file_system, const std::string& folder) {
  PunktParameters parameters;
  const std::string abbreviations = join(folder, "abbrev_types.txt");
  if (file_system.status(abbreviations).kind == PathKind::missing) {
    fail(ErrorKind::not_found,
         "{} does not exist; give the folder of a language in NLTK's punkt_tab, such as "
         "nltk_data/tokenizers/punkt_tab/english",
         abbreviations);
  }
  for_each_line(file_system, abbreviations, [&](std::string_view line, int64_t) {
    parameters.abbreviations.insert(characters_of(line));
  });
  for_each_line(file_system, join(folder, "sent_starters.txt"),
                [&](std::string_view line, int64_t) {
                  parameters.sentence_starters.insert(characters_of(line));
                });
  const std::string collocations = join(folder, "collocations.tab");
  for_each_line(file_system, collocations, [&](std::string_view line, int64_t number) {
    const auto [first, second] = two_fields(collocations, line, number);
    parameters.collocations.emplace(characters_of(first), characters_of(second));
  });
  const std::string orthography = join(folder, "ortho_context.tab");
  for_each_line(file_system, orthography, [&](std::string_view line, int64_t number) {
    const auto [word, context] = two_fields(orthography, line, number);
    uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(context.data(), context.data() + context.size(), value);
    if (error != std::errc() || end != context.data() + context.size()) {
      fail(ErrorKind::corrupt, "{}, line {}: '{}' is no whole number", orthography, number,
           context.substr(0, 80));
    }
    parameters.orthography[characters_of(word)] = value;
  });
  return parameters;
}

}  // namespace ferry
