// Members of tokenizer.json, checked.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {

/// The members of an object in tokenizer.json. Each getter throws corrupt, naming the file and the
/// member, if the value has another type.
class JsonMembers {
 public:
  JsonMembers(const nlohmann::json& object, std::string path, std::string where)
      : object_(object), path_(std::move(path)), where_(std::move(where)) {
    if (!object.is_object()) refuse("", "an object");
  }

  const std::string& path() const { return path_; }
  bool has(std::string_view name) const {
    const auto found = object_.find(name);
    return found != object_.end() && !found->is_null();
  }
  bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_[name].is_boolean()) refuse(name, "true or false");
    return object_[name].get<bool>();
  }
  std::string text(const char* name, const std::string& otherwise) const {
    return has(name) ? text(name) : otherwise;
  }
  std::string text(const char* name) const {
    if (!has(name) || !object_[name].is_string()) refuse(name, "a text");
    return object_[name].get<std::string>();
  }
  const nlohmann::json& array(const char* name) const {
    if (!has(name) || !object_[name].is_array()) refuse(name, "an array");
    return object_[name];
  }
  const nlohmann::json& object(const char* name) const {
    if (!has(name) || !object_[name].is_object()) refuse(name, "an object");
    return object_[name];
  }
  JsonMembers member(const char* name) const { return {object(name), path_, where_ + "." + name}; }
  /// The member `type`, a string.
  std::string type() const { return text("type"); }
  [[noreturn]] void refuse(const std::string& name, const char* expected) const {
    const auto found = object_.is_object() ? object_.find(name) : object_.end();
    const std::string value = !object_.is_object()     ? object_.dump(-1, ' ', true)
                              : found == object_.end() ? "nothing"
                                                       : found->dump(-1, ' ', true);
    fail(ErrorKind::corrupt, "{}: {}{}{} must be {}, found {}", path_, where_,
         name.empty() ? "" : ".", name, expected, value.substr(0, 80));
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorKind::unsupported, "{}: {} {} is not supported", path_, where_, what);
  }

 private:
  const nlohmann::json& object_;
  std::string path_, where_;
};

}  // namespace ferry
