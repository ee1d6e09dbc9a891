#include "tools/data/dataset/program_dataset.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <span>

#include "ckpt/base/error.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr size_t kShownBytes = 120;  // of an item or a wrong line

json answer_of(const std::string& line, const std::string& who, const std::string& what,
               const char* member) {
  json answer = json::parse(line, nullptr, false);
  if (answer.is_object() && answer.contains(member)) return answer;
  fail(ErrorKind::corrupt,
       "{} answered {} with '{}', which is not a JSON object with \"{}\"; whatever else it prints "
       "has "
       "to go to standard error, and NaN and Infinity are not JSON",
       who, what, printable(shortened(line, kShownBytes)), member);
}

}  // namespace

ProgramDataset::ProgramDataset(const std::string& command, const std::string& who,
                               LineProgramOptions options)
    : who_(who), program_(std::make_unique<LineProgram>(command, who, std::move(options))) {
  const std::string what = "with the dataset's size";
  const std::string line = program_->receive(what);
  const json size = answer_of(line, who_, "at first", "size").at("size");
  if (!size.is_number_integer() || size < 0 || size > INT64_MAX) {
    fail(ErrorKind::corrupt, "{} says that its size is {}, which is not a number of items", who_,
         printable(
             shortened(size.dump(-1, ' ', true, json::error_handler_t::replace), kShownBytes)));
  }
  size_ = size;
}

ProgramItem ProgramDataset::read(EpochIndex at) const {
  const std::string what = fmt::format("for item {} of epoch {}", at.index, at.epoch);
  if (program_->has_more()) {
    fail(ErrorKind::corrupt,
         "{} wrote '{}' before it was asked {}; it has to answer each line with one line", who_,
         printable(shortened(program_->receive(what), kShownBytes)), what);
  }
  program_->send(fmt::format(R"({{"index": {}, "epoch": {}}})", at.index, at.epoch), what);
  const std::string line = program_->receive(what);
  const json answer = answer_of(line, who_, what, "item");
  if (const auto problem = answer.find("problem"); problem != answer.end() && !problem->is_null()) {
    const std::string text =
        problem->is_string() ? problem->get<std::string>() : std::string("it names no problem");
    if (reported_.count++ == 0) reported_ = {at, text, 1};
  }
  // The line's own bytes: numbers that JSON's readers would round stay apart.
  return {digest_of(std::as_bytes(std::span(line))),
          shortened(answer.at("item").dump(-1, ' ', false, json::error_handler_t::replace),
                    kShownBytes)};
}

}  // namespace ferry::tool
