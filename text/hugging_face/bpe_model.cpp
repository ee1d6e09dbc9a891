#include <fmt/format.h>

#include <optional>

#include "ckpt/base/error.h"
#include "text/bpe/vocabulary.h"
#include "text/hugging_face/byte_tokens.h"
#include "text/hugging_face/member.h"
#include "text/hugging_face/model.h"
#include "text/json_file.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

struct BpeParts {
  Vocabulary vocabulary;
  MergeTable merges{0};
  bool one_pair = true;
  std::string unknown_token;  // empty: characters without a token are dropped
  std::string prefix, suffix;
  bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
  std::string path;
};

// BPE over characters, with all options of tokenizer.json.
class CharacterBpe final : public PieceModel {
 public:
  CharacterBpe(BpeParts parts, bool byte_level)
      : parts_(std::move(parts)), byte_level_(byte_level), bytes_(parts_.vocabulary) {
    unknown_ = parts_.unknown_token.empty() ? Vocabulary::kNone
                                            : parts_.vocabulary.find(parts_.unknown_token);
  }

  const Vocabulary& vocabulary() const override { return parts_.vocabulary; }
  std::string kind() const override { return "BPE"; }

  void encode(std::string_view piece, BytePairEncoder::State& state,
              std::vector<int32_t>& ids) const override {
    encode_cached(piece, byte_level_, state, ids,
                  [&](std::string_view whole, auto& to) { merge(whole, state, to); });
  }

 private:
  void merge(std::string_view piece, BytePairEncoder::State& state,
             std::vector<int32_t>& ids) const {
    if (parts_.ignore_merges) {
      if (const int32_t id = parts_.vocabulary.find(piece); id != Vocabulary::kNone) {
        ids.push_back(id);
        return;
      }
    }
    state.symbols.clear();
    add_characters(piece, state.symbols);
    state.merger.merge(parts_.merges, parts_.one_pair, state.symbols);
    ids.insert(ids.end(), state.symbols.begin(), state.symbols.end());
  }

  // An unknown token is emitted only at the next known character, so that bytes for other
  // characters precede it, as in models/bpe/model.rs, merge_word().
  void add_characters(std::string_view piece, std::vector<int32_t>& symbols) const {
    bool waits = false;
    std::string decorated;
    for (size_t at = 0; at < piece.size();) {
      const size_t bytes = unicode::character_at(piece.data() + at).bytes;
      std::string_view character = piece.substr(at, bytes);
      const bool first = at == 0, last = at + bytes == piece.size();
      at += bytes;
      if ((!first && !parts_.prefix.empty()) || (last && !parts_.suffix.empty())) {
        decorated = first ? "" : parts_.prefix;
        decorated += character;
        if (last) decorated += parts_.suffix;
        character = decorated;
      }
      const int32_t id = parts_.vocabulary.find(character);
      if (id != Vocabulary::kNone) {
        if (waits) symbols.push_back(unknown_);
        waits = false;
        symbols.push_back(id);
        continue;
      }
      if (parts_.byte_fallback && bytes_.append(character, symbols)) continue;
      if (parts_.unknown_token.empty()) continue;
      if (unknown_ == Vocabulary::kNone) {
        fail(ErrorKind::corrupt, "{}: the model lacks its unknown token '{}'", parts_.path,
             parts_.unknown_token);
      }
      if (waits && !parts_.fuse_unknown) symbols.push_back(unknown_);
      waits = true;
    }
    if (waits) symbols.push_back(unknown_);
  }

  BpeParts parts_;
  bool byte_level_;
  int32_t unknown_;
  ByteTokens bytes_;
};

// BPE over bytes, if all bytes have tokens.
class ByteBpe final : public PieceModel {
 public:
  explicit ByteBpe(BpeParts parts, Vocabulary bytes, BytePairs pairs)
      : written_(std::move(parts.vocabulary)), bytes_(std::move(bytes)), encoder_([&] {
          if (parts.ignore_merges) pairs.whole = &bytes_;
          return std::move(pairs);
        }()) {}

  const Vocabulary& vocabulary() const override { return written_; }
  std::string kind() const override { return "byte-level BPE"; }
  void encode(std::string_view piece, BytePairEncoder::State& state,
              std::vector<int32_t>& ids) const override {
    encoder_.encode(piece, state, ids);
  }

 private:
  Vocabulary written_, bytes_;
  BytePairEncoder encoder_;
};

void read_bpe_vocabulary(const JsonMembers& model, BpeParts& parts) {
  for (const auto& [token, id] : model.object("vocab").items()) {
    const int32_t value = token_id(id, parts.path, token);
    if (token.empty()) continue;
    if (!parts.vocabulary.token(value).empty()) {
      fail(ErrorKind::corrupt, "{}: the tokens '{}' and '{}' have the same id {}", parts.path,
           parts.vocabulary.token(value), token, value);
    }
    parts.vocabulary.insert(token, value);
  }
}

std::pair<std::string, std::string> merge_of(const nlohmann::json& merge, size_t index,
                                             const std::string& path) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto text = merge.get<std::string>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  fail(ErrorKind::corrupt, "{}: model.merges[{}] must be two tokens, found {}", path, index,
       merge.dump(-1, ' ', true).substr(0, 80));
}

void read_bpe_merges(const nlohmann::json& merges, BpeParts& parts) {
  parts.merges = MergeTable(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right] = merge_of(merges[i], i, parts.path);
    if (right.size() < parts.prefix.size()) {
      fail(ErrorKind::corrupt, "{}: model.merges[{}]: '{}' lacks the prefix '{}'", parts.path, i,
           right, parts.prefix);
    }
    const std::string both = left + right.substr(parts.prefix.size());
    for (const std::string& token : {left, right, both}) {
      if (parts.vocabulary.find(token) == Vocabulary::kNone) {
        fail(ErrorKind::corrupt,
             "{}: model.merges[{}] ('{}' and '{}') needs the token '{}', which "
             "model.vocab lacks",
             parts.path, i, left, right, token);
      }
    }
    parts.merges.insert(parts.vocabulary.find(left), parts.vocabulary.find(right),
                        static_cast<int32_t>(i), parts.vocabulary.find(both));
  }
  parts.one_pair = parts.merges.symbols_have_one_pair();
}

}  // namespace

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

std::unique_ptr<const PieceModel> read_bpe(const nlohmann::json& json, bool byte_level,
                                           const std::string& path) {
  const JsonMembers model(json, path, "model");
  BpeParts parts;
  parts.path = path;
  parts.unknown_token = model.text("unk_token", "");
  parts.prefix = model.text("continuing_subword_prefix", "");
  parts.suffix = model.text("end_of_word_suffix", "");
  parts.fuse_unknown = model.flag("fuse_unk", false);
  parts.byte_fallback = model.flag("byte_fallback", false);
  parts.ignore_merges = model.flag("ignore_merges", false);
  if (model.has("dropout") && json["dropout"] != 0.0) model.unsupported("with dropout");
  read_bpe_vocabulary(model, parts);
  read_bpe_merges(model.array("merges"), parts);
  Vocabulary bytes;
  BytePairs pairs;
  bool plain = byte_level && parts.prefix.empty() && parts.suffix.empty();
  for (size_t byte = 0; byte < 256 && plain; ++byte) {
    const char character = static_cast<char>(byte);
    pairs.byte_symbols[byte] = parts.vocabulary.find(to_byte_level({&character, 1}));
    plain = pairs.byte_symbols[byte] != Vocabulary::kNone;
  }
  if (!plain) return std::make_unique<CharacterBpe>(std::move(parts), byte_level);
  for (int32_t id = 0; id < parts.vocabulary.end(); ++id) {
    const std::string_view token = parts.vocabulary.token(id);
    if (const auto text = from_byte_level(token); text && !text->empty()) bytes.insert(*text, id);
  }
  pairs.merges = std::move(parts.merges);
  pairs.one_pair = parts.one_pair;
  return std::make_unique<ByteBpe>(std::move(parts), std::move(bytes), std::move(pairs));
}

std::unique_ptr<const PieceModel> read_piece_model(const nlohmann::json& json, bool byte_level,
                                                   const std::string& path) {
  const JsonMembers model(json, path, "model");
  // Older files lack the type.
  const std::string type = model.text("type", model.has("merges") ? "BPE" : "Unigram");
  if (type == "BPE") return read_bpe(json, byte_level, path);
  if (type == "Unigram") return read_unigram(json, byte_level, path);
  fail(ErrorKind::unsupported, "{}: models of type {} are not supported; BPE and Unigram are", path,
       type);
}

}  // namespace ferry
