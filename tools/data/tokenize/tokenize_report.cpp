#include "tools/data/tokenize/tokenize_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr int64_t kUsualInterval = 1000;  // preprocess_data.py's --log-interval
constexpr double kMegabyte = 1024.0 * 1024;

std::string rates(const TokenizedText& tokenized) {
  if (tokenized.seconds <= 0 || tokenized.result.went_on) return {};
  const auto tokens = static_cast<double>(tokenized.result.counts.tokens);
  std::string text =
      fmt::format("{} tokens/s", human_count(static_cast<int64_t>(tokens / tokenized.seconds)));
  if (tokenized.input_bytes > 0) {
    const auto bytes = static_cast<double>(tokenized.input_bytes);
    text += fmt::format(", {}/s", human_bytes(static_cast<uint64_t>(bytes / tokenized.seconds)));
  }
  return " (" + text + ")";
}

}  // namespace

std::string to_text(const TokenizedText& tokenized) {
  const EncodeCounts& counts = tokenized.result.counts;
  std::string text;
  for (size_t k = 0; k < tokenized.outputs.size(); ++k) {
    const std::string& output = tokenized.outputs[k];
    if (tokenized.dry_run) {
      text += fmt::format("would write {} with tokens of type {}\n", printable(output),
                          torch_name(tokenized.type));
      continue;
    }
    const WrittenTokens& written = tokenized.result.outputs[k];
    const auto item = static_cast<uint64_t>(size_bytes(tokenized.type));
    text += fmt::format("wrote {}: {} documents, {} tokens of type {}, {}\n", printable(output),
                        grouped(written.documents),
                        grouped(static_cast<int64_t>(written.token_bytes / item)),
                        torch_name(tokenized.type), human_bytes(written.token_bytes));
  }
  text += fmt::format("  tokenizer {}, {} ids\n", printable(tokenized.tokenizer),
                      grouped(tokenized.vocab_size));
  if (tokenized.dry_run) {
    text +=
        fmt::format("  from {} file{}, {}\n", grouped(std::ssize(tokenized.inputs)),
                    tokenized.inputs.size() == 1 ? "" : "s", human_bytes(tokenized.input_bytes));
    for (const std::string& input : tokenized.inputs) text += "    " + printable(input) + "\n";
    return text;
  }
  text += fmt::format("  in {} with {} worker{}{}\n", human_seconds(tokenized.seconds),
                      tokenized.workers, tokenized.workers == 1 ? "" : "s", rates(tokenized));
  if (tokenized.result.went_on) text += "  an earlier run had done a part\n";
  if (counts.empty > 0) {
    text += fmt::format("  {} document{} without a token\n", grouped(counts.empty),
                        counts.empty == 1 ? "" : "s");
  }
  if (counts.blank > 0)
    text += fmt::format("  passed over {} blank lines\n", grouped(counts.blank));
  if (counts.bad > 0) {
    text +=
        fmt::format("  left out {} bad line{}:\n", grouped(counts.bad), counts.bad == 1 ? "" : "s");
    for (const BadLine& one : counts.first_bad) {
      text += fmt::format("    {}: {}\n", printable(one.place), printable(one.problem));
    }
  }
  if (tokenized.part.count > 1) {
    text += "  to join the parts, once all are there: ferry data merge\n";
  }
  if (counts.lines == 0) {
    return text + "  warning: the inputs hold no document: there is nothing to train on\n";
  }
  if (counts.tokens == 0) {
    return text + "  warning: no document has a token: there is nothing to train on\n";
  }
  for (const std::string& output : tokenized.outputs) {
    if (tokenized.part.count > 1) break;
    text += fmt::format("  to train on it: --data-path {} {}\n", shell_word(output),
                        tokenized.training_options);
  }
  return text;
}

json to_json(const TokenizedText& tokenized) {
  const EncodeCounts& counts = tokenized.result.counts;
  json outputs = json::array(), bad = json::array();
  for (size_t k = 0; k < tokenized.outputs.size(); ++k) {
    json output = {{"prefix", tokenized.outputs[k]}};
    if (!tokenized.dry_run) {
      const WrittenTokens& written = tokenized.result.outputs[k];
      output["documents"] = written.documents;
      output["sequences"] = written.sequences;
      output["tokens"] = written.token_bytes / static_cast<uint64_t>(size_bytes(tokenized.type));
      output["bytes"] = written.token_bytes;
    }
    outputs.push_back(output);
  }
  for (const BadLine& one : counts.first_bad) {
    bad.push_back({{"place", one.place}, {"problem", one.problem}});
  }
  return {{"outputs", outputs},
          {"inputs", tokenized.inputs},
          {"input_bytes", tokenized.input_bytes},
          {"tokenizer", tokenized.tokenizer},
          {"vocabulary_size", tokenized.vocab_size},
          {"dtype", torch_name(tokenized.type)},
          {"part", {{"number", tokenized.part.number}, {"count", tokenized.part.count}}},
          {"workers", tokenized.workers},
          {"tokens", counts.tokens},
          {"characters", counts.characters},
          {"empty_documents", counts.empty},
          {"blank_lines", counts.blank},
          {"bad_lines", counts.bad},
          {"first_bad_lines", bad},
          {"resumed", tokenized.result.went_on},
          {"dry_run", tokenized.dry_run},
          {"seconds", tokenized.seconds}};
}

TokenizeLog::TokenizeLog(int64_t interval, bool quiet, uint64_t total_bytes)
    : interval_(interval),
      quiet_(quiet),
      total_bytes_(total_bytes),
      line_("tokenising"),
      terminal_(isatty(STDERR_FILENO) == 1) {}

void TokenizeLog::begin(const TokenizedText& tokenized, const EncodeCounts& of_earlier_run) {
  begun_ = reported_ = line_.seconds();
  documents_reported_ = earlier_documents_ = of_earlier_run.lines;
  earlier_characters_ = of_earlier_run.characters;
  if (quiet_) return;
  std::string text = fmt::format("Processing data with {} workers.\n", tokenized.workers);
  for (const std::string& input : tokenized.inputs) {
    text += fmt::format("Opening {}\n", printable(input));
  }
  print(text + fmt::format("Time to startup: {}\n", begun_));
}

void TokenizeLog::show(const EncodeCounts& counts, uint64_t bytes_read) {
  if (total_bytes_ > 0) line_.show({std::min(bytes_read, total_bytes_), total_bytes_});
  const double now = line_.seconds(), elapsed = now - begun_;
  if (quiet_ || (interval_ == 0 && (terminal_ || now - reported_ < 1))) return;
  const int64_t step = interval_ == 0 ? kUsualInterval : interval_;
  const int64_t last = counts.lines / step * step;
  // Each multiple where an interval was asked for, as documents come by the piece.
  int64_t documents = interval_ == 0 ? last - step : documents_reported_ / step * step;
  if (last <= documents_reported_) return;
  const auto rate = [&](int64_t all, int64_t earlier) {
    return static_cast<double>(all - earlier) / elapsed;
  };
  for (documents += step; documents <= last; documents += step) {
    print_aside(fmt::format("Processed {} documents ({} docs/s, {} MB/s).\n", documents,
                            rate(counts.lines, earlier_documents_),
                            rate(counts.characters, earlier_characters_) / kMegabyte));
  }
  documents_reported_ = last;
  reported_ = now;
}

}  // namespace ferry::tool
