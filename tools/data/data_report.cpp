#include "tools/data/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/byte_tokenizer.h"
#include "tools/terminal/flags.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr int64_t kBarWidth = 40;

std::string powers_label(size_t power) {
  if (power == 0) return "0";
  const int64_t least = int64_t{1} << (power - 1);
  return least == 1 ? "1" : fmt::format("{}-{}", grouped(least), grouped(2 * least - 1));
}

std::string length_histogram(const std::vector<int64_t>& counts) {
  const auto used = std::find_if(counts.begin(), counts.end(), [](int64_t n) { return n > 0; });
  if (used == counts.end()) return "";
  const int64_t most = *std::max_element(counts.begin(), counts.end());
  std::vector<std::vector<std::string>> rows;
  for (auto power = static_cast<size_t>(used - counts.begin()); power < counts.size(); ++power) {
    const auto width = static_cast<size_t>((counts[power] * kBarWidth + most - 1) / most);
    rows.push_back({powers_label(power), grouped(counts[power]), std::string(width, '#')});
  }
  return "\n  tokens of a document\n" + table(rows, {true, true, false}, "  ");
}

std::string files_count(size_t count) {
  return fmt::format("{} pair{} of files", grouped(static_cast<int64_t>(count)),
                     count == 1 ? "" : "s");
}

}  // namespace

std::string to_text(const InspectedTokens& seen) {
  std::vector<std::vector<std::string>> rows = {
      {"tokens of", printable(seen.prefix)},
      {"type", fmt::format("{}, {} bytes", torch_name(seen.type), size_bytes(seen.type))},
      {"documents", grouped(seen.documents)},
      {"sequences", grouped(seen.sequences) + (seen.has_modes ? ", with modes" : "")},
      {"tokens", fmt::format("{}, {}", grouped(seen.tokens), human_bytes(seen.token_bytes))}};
  if (seen.largest_token) rows.push_back({"largest token", grouped(*seen.largest_token)});
  if (seen.documents > 0) {
    rows.push_back(
        {"a document",
         fmt::format("{} to {} tokens, {:.1f} on average", grouped(seen.lengths.least),
                     grouped(seen.lengths.most),
                     static_cast<double>(seen.tokens) / static_cast<double>(seen.documents))});
    std::vector<std::string> parts;
    for (size_t q = 0; q < kQuantiles.size(); ++q) {
      parts.push_back(
          fmt::format("{:.0f}%: {}", 100 * kQuantiles[q], grouped(seen.lengths.quantiles[q])));
    }
    rows.push_back({"quantiles", fmt::format("{}", fmt::join(parts, "   "))});
  }
  std::string text = table(rows, {false, false}, "") + length_histogram(seen.lengths.powers_of_two);
  if (seen.document) {
    text += fmt::format("\n  document {} begins\n  {}\n", grouped(*seen.document),
                        fmt::join(seen.document_tokens, " "));
  }
  const auto held = static_cast<int64_t>(seen.token_bytes) / size_bytes(seen.type);
  if (seen.tokens > held) {
    text += fmt::format(
        "note: the index lists {} tokens, but {}.bin holds {}: part of it is missing; 'ferry data "
        "check' shows where\n",
        grouped(seen.tokens), printable(seen.prefix), grouped(held));
  }
  return text;
}

json to_json(const InspectedTokens& seen) {
  json quantiles = json::object(), bins = json::array();
  for (size_t q = 0; q < kQuantiles.size(); ++q) {
    quantiles[fmt::format("{:.2f}", kQuantiles[q])] = seen.lengths.quantiles[q];
  }
  const std::vector<int64_t>& counts = seen.lengths.powers_of_two;
  for (size_t power = 0; power < counts.size(); ++power) {
    const int64_t least = power == 0 ? 0 : int64_t{1} << (power - 1);
    bins.push_back(
        {{"least", least}, {"most", power == 0 ? 0 : 2 * least - 1}, {"documents", counts[power]}});
  }
  json report = {{"prefix", seen.prefix},
                 {"dtype", torch_name(seen.type)},
                 {"documents", seen.documents},
                 {"sequences", seen.sequences},
                 {"tokens", seen.tokens},
                 {"bytes", seen.token_bytes},
                 {"modes", seen.has_modes},
                 {"document_lengths",
                  {{"least", seen.lengths.least},
                   {"most", seen.lengths.most},
                   {"quantiles", quantiles},
                   {"histogram", bins}}},
                 {"largest_token", seen.largest_token ? json(*seen.largest_token) : json(nullptr)}};
  if (seen.document) {
    report["document"] = {{"number", *seen.document}, {"first_tokens", seen.document_tokens}};
  }
  return report;
}

size_t problem_count(const std::vector<CheckedTokens>& checked) {
  size_t count = 0;
  for (const CheckedTokens& one : checked) count += one.check.problems.size();
  return count;
}

std::string to_text(const std::vector<CheckedTokens>& checked) {
  std::string text;
  for (const CheckedTokens& one : checked) {
    text += fmt::format("{}: {} documents, {} tokens, {}\n", printable(one.prefix),
                        grouped(one.check.documents), grouped(one.check.tokens),
                        one.check.problems.empty() ? "no problem" : "damaged");
    for (const std::string& problem : one.check.problems) {
      text += "  problem: " + message_text(problem) + "\n";
    }
    for (const std::string& note : one.check.notes) text += "  note: " + message_text(note) + "\n";
  }
  return text;
}

json to_json(const std::vector<CheckedTokens>& checked) {
  json datasets = json::array();
  for (const CheckedTokens& one : checked) {
    datasets.push_back({{"prefix", one.prefix},
                        {"documents", one.check.documents},
                        {"tokens", one.check.tokens},
                        {"problems", one.check.problems},
                        {"notes", one.check.notes}});
  }
  return {{"datasets", datasets}, {"problems", problem_count(checked)}};
}

std::string to_text(const MergedTokens& merged) {
  std::string text =
      fmt::format("{} {} from {}: {} documents, {} tokens of type {}, {}",
                  merged.dry_run ? "would write" : "wrote", printable(merged.output),
                  files_count(merged.inputs.size()), grouped(merged.documents),
                  grouped(merged.tokens), torch_name(merged.type), human_bytes(merged.bytes));
  text += merged.dry_run ? "\n" : " in " + human_seconds(merged.seconds) + "\n";
  for (const std::string& input : merged.inputs) text += "  " + printable(input) + "\n";
  return text;
}

json to_json(const MergedTokens& merged) {
  return {{"output", merged.output},
          {"inputs", merged.inputs},
          {"dtype", torch_name(merged.type)},
          {"documents", merged.documents},
          {"sequences", merged.sequences},
          {"tokens", merged.tokens},
          {"bytes", merged.bytes},
          {"dry_run", merged.dry_run}};
}

std::string to_text(const WrittenBytes& result) {
  const ByteTokens& written = result.written;
  std::string text = fmt::format(
      "wrote {} from {} file{}: {} documents, {} tokens of type uint16, {} in {}\n",
      printable(result.output), grouped(static_cast<int64_t>(result.files.size())),
      result.files.size() == 1 ? "" : "s", grouped(written.documents), grouped(written.tokens),
      human_bytes(result.bytes), human_seconds(result.seconds));
  if (written.left_out > 0) {
    text += fmt::format("  left out {} without any text\n", grouped(written.left_out));
  }
  return text +
         fmt::format(
             "  to train on it: --data-path {} --tokenizer-type NullTokenizer --vocab-size {}\n",
             shell_word(result.output), ByteTokenizer::kVocabSize);
}

json to_json(const WrittenBytes& result) {
  return {{"output", result.output},
          {"files", result.files},
          {"dtype", torch_name(DType::u16)},
          {"vocabulary_size", ByteTokenizer::kVocabSize},
          {"documents", result.written.documents},
          {"left_out", result.written.left_out},
          {"tokens", result.written.tokens},
          {"bytes", result.bytes}};
}

}  // namespace ferry::tool
