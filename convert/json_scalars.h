// The scalars of a JSON text, one by one. Keeps nothing: tokenizer.json can be tens of megabytes.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ferry {

/// Calls back with every scalar and the keys that lead to it; array elements have no key of their
/// own but end in "[]". For nlohmann::json::sax_parse.
class JsonScalars : public nlohmann::json_sax<nlohmann::json> {
 public:
  using Visit = std::function<void(const std::vector<std::string>& path, const std::string* text,
                                   std::optional<int64_t> number)>;
  explicit JsonScalars(Visit visit) : visit_(std::move(visit)) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t value) override { return scalar(nullptr, value); }
  bool number_unsigned(uint64_t value) override {
    return scalar(nullptr, value <= INT64_MAX ? static_cast<int64_t>(value) : INT64_MAX);
  }
  bool number_float(double, const std::string&) override { return scalar(nullptr, std::nullopt); }
  bool string(std::string& value) override { return scalar(&value, std::nullopt); }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return push({}); }
  bool key(std::string& name) override {
    path_.back() = name;
    return true;
  }
  bool end_object() override { return pop(); }
  bool start_array(size_t) override { return push("[]"); }
  bool end_array() override { return pop(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool scalar(const std::string* text, std::optional<int64_t> number) {
    visit_(path_, text, number);
    return true;
  }
  bool push(std::string name) {
    path_.push_back(std::move(name));
    return path_.size() < 64;
  }
  bool pop() {
    path_.pop_back();
    return true;
  }

  Visit visit_;
  std::vector<std::string> path_;
};

}  // namespace ferry
