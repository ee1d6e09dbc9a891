#include "text/hugging_face/added_tokens.h"

#include <algorithm>
#include <iterator>

#include "text/hugging_face/member.h"
#include "text/json_file.h"
#include "text/unicode/classes.h"
#include "text/unicode/utf8.h"

namespace ferry {

namespace {

uint8_t classes_of(std::string_view text, size_t at) {
  return unicode::character_classes(
      unicode::Version::v16)[unicode::character_at(text.data() + at).point];
}

size_t before_character(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

bool is_word(std::string_view text, size_t at) {
  return unicode::is_word(unicode::character_at(text.data() + at).point);
}

}  // namespace

void AddedTokens::insert(AddedToken token) {
  if (token.content.empty()) return;
  const auto index = static_cast<uint32_t>(tokens_.size());
  auto& list = by_first_byte_[static_cast<unsigned char>(token.content[0])];
  tokens_.push_back(std::move(token));
  list.push_back(index);
  std::stable_sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
    return tokens_[a].content.size() > tokens_[b].content.size();
  });
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at) const {
  for (const uint32_t index : by_first_byte_[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at).starts_with(tokens_[index].content)) return &tokens_[index];
  }
  return nullptr;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end) const {
  return (begin == 0 || !is_word(text, before_character(text, begin))) &&
         (end == text.size() || !is_word(text, end));
}

void AddedTokens::divide(std::string_view text, const std::function<void(size_t, size_t)>& between,
                         const std::function<void(int32_t)>& found) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->strip_left) {
      while (begin > done) {
        const size_t previous = before_character(text, begin);
        if ((classes_of(text, previous) & unicode::kSpace) == 0) break;
        begin = previous;
      }
      begin = std::max(begin, done);
    }
    if (token->strip_right) {
      while (end < text.size() && (classes_of(text, end) & unicode::kSpace) != 0) {
        end += unicode::character_at(text.data() + end).bytes;
      }
    }
    if (done < begin) between(done, begin);
    found(token->id);
    done = end;
  }
  if (done < text.size()) between(done, text.size());
}

namespace {

void read_template(const JsonMembers& members, const std::string& path, AroundText& around) {
  const nlohmann::json& special = members.object("special_tokens");
  AroundText added;
  bool is_after = false;
  for (const nlohmann::json& piece : members.array("single")) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (is_after) members.unsupported("that repeats the text");
      is_after = true;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken")) {
      members.refuse("single", "texts and special tokens");
    }
    const std::string name =
        JsonMembers(piece, path, "post_processor.single").member("SpecialToken").text("id");
    if (!special.contains(name)) {
      fail(ErrorKind::corrupt,
           "{}: post_processor.special_tokens lacks '{}', which the template uses", path, name);
    }
    const JsonMembers token(special[name], path, "post_processor.special_tokens");
    for (const nlohmann::json& id : token.array("ids")) {
      (is_after ? added.after : added.before).push_back(token_id(id, path, name));
    }
  }
  if (!is_after) members.unsupported("without the text");
  around.before.insert(around.before.begin(), added.before.begin(), added.before.end());
  around.after.insert(around.after.end(), added.after.begin(), added.after.end());
}

// [CLS] and [SEP], as ["[CLS]", 101].
int32_t id_of_pair(const JsonMembers& members, const char* name, const std::string& path) {
  const nlohmann::json& pair = members.array(name);
  if (pair.size() != 2 || !pair[0].is_string()) members.refuse(name, "a token and its id");
  return token_id(pair[1], path, pair[0].get<std::string>());
}

void read_processor(const nlohmann::json& json, const std::string& path, AroundText& around) {
  if (json.is_null()) return;
  const JsonMembers members(json, path, "post_processor");
  const std::string type = members.type();
  if (type == "ByteLevel") return;  // offsets alone
  if (type == "Sequence") {
    for (const nlohmann::json& one : members.array("processors")) {
      read_processor(one, path, around);
    }
  } else if (type == "TemplateProcessing") {
    read_template(members, path, around);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    around.before.insert(around.before.begin(), id_of_pair(members, "cls", path));
    around.after.push_back(id_of_pair(members, "sep", path));
  } else {
    members.unsupported("of type " + type);
  }
}

}  // namespace

AroundText read_post_processor(const nlohmann::json& json, const std::string& path) {
  AroundText around;
  read_processor(json, path, around);
  return around;
}

}  // namespace ferry
