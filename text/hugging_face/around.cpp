#include "text/hugging_face/around.h"

#include <iterator>

#include "text/hugging_face/member.h"
#include "text/json_file.h"

namespace ferry {
namespace {

void read_template(const JsonMembers& members, const std::string& path, AroundText& around) {
  const nlohmann::json& special = members.object("special_tokens");
  AroundText added;
  bool behind = false;
  for (const nlohmann::json& piece : members.array("single")) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (behind) members.unsupported("that repeats the text");
      behind = true;
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken")) {
      members.refuse("single", "texts and special tokens");
    }
    const std::string name =
        JsonMembers(piece, path, "post_processor.single").member("SpecialToken").text("id");
    if (!special.contains(name)) {
      fail(ErrorKind::corrupt,
           "{}: post_processor.special_tokens lacks '{}', which its template "
           "names",
           path, name);
    }
    const JsonMembers token(special[name], path, "post_processor.special_tokens");
    for (const nlohmann::json& id : token.array("ids")) {
      (behind ? added.after : added.before).push_back(token_id(id, path, name));
    }
  }
  if (!behind) members.unsupported("without the text");
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
