// JSON from outside, event by event: for headers and indexes that may name 100,000 tensors, where a
// tree would cost many times the text and would hide duplicate keys.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {

/// Base of event handlers. Every event is refused, with `expected()`, unless a derived class takes
/// it; parse errors become Error(corrupt) with the byte's position. skip() passes over the next
/// value, whatever it holds.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonEvents(std::string what) : what_(std::move(what)) {}

  const std::string& what() const noexcept { return what_; }

  bool null() override { return scalar() || take_null(); }
  bool boolean(bool) override { return scalar() || refuse("true or false"); }
  bool number_integer(number_integer_t) override { return scalar() || refuse("a negative number"); }
  bool number_unsigned(number_unsigned_t value) override { return scalar() || take_number(value); }
  bool number_float(number_float_t, const string_t& text) override {
    return scalar() || refuse(text);
  }
  bool string(string_t& value) override { return scalar() || take_string(value); }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool start_object(std::size_t) override { return open() || take_object(); }
  bool end_object() override { return close() || end_of_object(); }
  bool start_array(std::size_t) override { return open() || take_array(); }
  bool end_array() override { return close() || end_of_array(); }
  bool key(string_t& name) override { return skipping_ > 0 || take_key(name); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override;

 protected:
  virtual bool take_null() { return refuse("null"); }
  virtual bool take_number(uint64_t) { return refuse("a number"); }
  virtual bool take_string(std::string&) { return refuse("a string"); }
  virtual bool take_object() { return refuse("an object"); }
  virtual bool take_array() { return refuse("an array"); }
  virtual bool take_key(std::string& name) = 0;
  virtual bool end_of_object() = 0;
  virtual bool end_of_array() { return true; }
  /// What is allowed here, for messages: "tensor a.b: dtype must be a string".
  virtual std::string expected() const = 0;

  void skip() { skip_next_ = true; }
  [[noreturn]] bool refuse(std::string_view found) const;

 private:
  bool scalar() {
    const bool skipped = skip_next_ || skipping_ > 0;
    skip_next_ = false;
    return skipped;
  }
  bool open() {
    if (!skip_next_ && skipping_ == 0) return false;
    skip_next_ = false;
    ++skipping_;
    return true;
  }
  bool close() {
    if (skipping_ == 0) return false;
    --skipping_;
    return true;
  }

  std::string what_;
  bool skip_next_ = false;
  int64_t skipping_ = 0;  // depth of open objects and arrays that are passed over
};

/// Sends the events of `text` to `events`. corrupt for what is not JSON (comments, NUL and trailing
/// bytes included).
void parse_events(std::string_view text, JsonEvents& events);

/// Parses a small document (a configuration) into a tree. corrupt, naming `what`, for text that is
/// not JSON or is nested deeper than 100 levels.
nlohmann::json parse_json(std::string_view text, const std::string& what);

/// The same of what Python's json wrote, which has NaN, Infinity and -Infinity for numbers that
/// JSON lacks.
nlohmann::json parse_python_json(std::string_view text, const std::string& what);

/// The same, of an object only the members of these names: of a log that is megabytes long its
/// header takes no more memory than it has.
nlohmann::json parse_python_members(std::string_view text, const std::string& what,
                                    std::span<const std::string_view> members);

/// Such a document after `edit`, as Python's json writes it with an indent of 2: its members keep
/// their order, and those words stay.
std::string edit_python_json(std::string_view text, const std::string& what,
                             const std::function<void(nlohmann::ordered_json&)>& edit);

}  // namespace ferry
