#include "text/hugging_face/decoder.h"

#include <charconv>
#include <memory>

#include "text/bpe/vocabulary.h"
#include "text/hugging_face/member.h"
#include "text/split/splitter.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

void fuse(std::vector<std::string>& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {std::move(all)};
}

void decode_byte_level(std::vector<std::string>& tokens) {
  for (std::string& token : tokens) {
    if (auto bytes = from_byte_level(token)) token = std::move(*bytes);
  }
  fuse(tokens);
}

// Each byte of a run that is not UTF-8 becomes U+FFFD.
void decode_bytes(std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string bytes;
  const auto flush = [&] {
    if (unicode::well_formed_prefix(bytes) == bytes.size()) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    uint8_t byte = 0;
    const char* digits = token.data() + 3;
    if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    result.push_back(std::move(token));
  }
  flush();
  tokens = std::move(result);
}

DecoderStep metaspace_decoder(const std::string& replacement, bool prepends) {
  return [=](std::vector<std::string>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string text;
      for (size_t at = 0; at < tokens[i].size();) {
        const bool space = tokens[i].compare(at, replacement.size(), replacement) == 0;
        if (!space) {
          text += tokens[i][at++];
          continue;
        }
        if (i > 0 || !prepends) text += ' ';
        at += replacement.size();
      }
      tokens[i] = std::move(text);
    }
  };
}

DecoderStep strip_decoder(const std::string& content, uint64_t start, uint64_t stop) {
  return [=](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      for (uint64_t i = 0; i < start && token.starts_with(content); ++i) {
        token.erase(0, content.size());
      }
      for (uint64_t i = 0; i < stop && token.ends_with(content); ++i) {
        token.resize(token.size() - content.size());
      }
    }
  };
}

DecoderStep replace_decoder(const JsonMembers& members) {
  const JsonMembers pattern = members.member("pattern");
  const std::shared_ptr<const Splitter> splitter =
      pattern.has("String")
          ? make_literal_splitter(pattern.text("String"))
          : make_splitter(pattern.text("Regex"), PatternSyntax::oniguruma, members.path());
  if (pattern.has("String") && pattern.text("String").empty()) members.refuse("pattern", "longer");
  return [splitter, content = members.text("content")](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      std::string text;
      size_t at = 0;
      while (at < token.size()) {
        const Match match = splitter->find(token, at);
        text.append(token, at, match.begin - at);
        if (match.begin < token.size()) text += content;
        at = match.end > match.begin ? match.end : token.size();
      }
      token = std::move(text);
    }
  };
}

uint64_t count_of(const nlohmann::json& json, const JsonMembers& members, const char* name) {
  if (!members.has(name) || !json[name].is_number_unsigned()) members.refuse(name, "a number");
  return json[name].get<uint64_t>();
}

void add_decoder(const nlohmann::json& json, const std::string& path,
                 std::vector<DecoderStep>& steps) {
  const JsonMembers members(json, path, "decoder");
  const std::string type = members.type();
  if (type == "Sequence") {
    for (const nlohmann::json& one : members.array("decoders")) add_decoder(one, path, steps);
  } else if (type == "ByteLevel") {
    steps.push_back(decode_byte_level);
  } else if (type == "ByteFallback") {
    steps.push_back(decode_bytes);
  } else if (type == "Fuse") {
    steps.push_back(fuse);
  } else if (type == "Metaspace") {
    const std::string replacement = members.text("replacement");
    if (replacement.empty()) members.refuse("replacement", "a character");
    const bool never = members.text("prepend_scheme", "always") == "never" ||
                       !members.flag("add_prefix_space", true);
    steps.push_back(metaspace_decoder(replacement, !never));
  } else if (type == "Strip") {
    const std::string content = members.text("content");
    if (content.empty()) members.refuse("content", "a character");
    steps.push_back(
        strip_decoder(content, count_of(json, members, "start"), count_of(json, members, "stop")));
  } else if (type == "Replace") {
    steps.push_back(replace_decoder(members));
  } else {
    members.unsupported("of type " + type);
  }
}

}  // namespace

std::vector<DecoderStep> read_decoder(const nlohmann::json& json, const std::string& path) {
  std::vector<DecoderStep> steps;
  if (!json.is_null()) {
    add_decoder(json, path, steps);
    return steps;
  }
  steps.push_back([](std::vector<std::string>& tokens) {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, 1, ' ');
  });
  return steps;
}

}  // namespace ferry
