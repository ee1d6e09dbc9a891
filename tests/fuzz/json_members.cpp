#include "tests/fuzz/json_members.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace ferry::test {
namespace {

using nlohmann::json;

// Spellings inside of texts of what JSON has no values for. No checkpoint has these bytes.
constexpr std::string_view kNotANumber = "\x01NaN\x01", kInfinity = "\x01Infinity\x01",
                           kMinusInfinity = "\x01-Infinity\x01";
constexpr std::string_view kTwice = "\x01";  // at the end of a key

const std::vector<json>& edges() {
  static const std::vector<json> values = {
      nullptr,
      true,
      false,
      0,
      1,
      2,
      3,
      -1,
      -0.0,
      0.5,
      1.5,
      -2.5,
      1e-300,
      1e300,
      -1e300,
      255,
      65536,
      INT32_MAX,
      int64_t{INT32_MAX} + 1,
      int64_t{1} << 40,
      int64_t{1} << 53,
      (int64_t{1} << 53) + 1,
      int64_t{1} << 62,
      INT64_MAX,
      INT64_MIN,
      UINT64_MAX,
      1e19,
      std::string(kNotANumber),
      std::string(kInfinity),
      std::string(kMinusInfinity),
      "",
      "1",
      "8",
      "true",
      "auto",
      "bfloat16",
      "llama",
      "\xc3\xa9",
      std::string(5000, 'x'),
      json::array(),
      json::array({1}),
      json::array({1, 2, 3, 4}),
      json::array({nullptr, "a", -1}),
      json(std::vector<int>(1000, 1)),
      json::object(),
      json::object({{"rope_type", "yarn"}, {"factor", 4}}),
      json::object({{"type", "llama3"}, {"factor", 0}}),
      json::array({json::array({json::array()})}),
  };
  return values;
}

// Objects of a tree, itself first.
void collect_objects(json& value, std::vector<json*>& objects) {
  if (value.is_object()) objects.push_back(&value);
  if (!value.is_structured()) return;
  for (json& inner : value) collect_objects(inner, objects);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// As dump() spells it.
std::string spelled(std::string_view text, bool whole) {
  std::string result = json(text).dump();
  return whole ? result : result.substr(1, result.size() - 2);
}

}  // namespace

json edge_value(Random& random) { return random.pick(edges()); }

json near_value(const json& value, Random& random) {
  if (!value.is_number()) return edge_value(random);
  if (value.is_number_float()) {
    const double number = value.get<double>();
    static constexpr double kFactors[] = {-1, 0, 0.5, 2, 1.0000001, 1e6};
    return number * random.pick(kFactors);
  }
  const uint64_t number = value.get<uint64_t>();  // of a negative one the two's complement
  switch (random.below(6)) {
    case 0:
      return static_cast<int64_t>(number + 1);
    case 1:
      return static_cast<int64_t>(number - 1);
    case 2:
      return static_cast<int64_t>(number * 2);
    case 3:
      return static_cast<int64_t>(number / 2);
    case 4:
      return static_cast<double>(number);
    default:
      return static_cast<int64_t>(random.below(17));
  }
}

void Members::learn(const json& object) {
  for (const auto& [name, value] : object.items()) {
    known_.emplace_back(name, value);
    if (value.is_object()) learn(value);
  }
}

void Members::change(json& root, Random& random) const {
  std::vector<json*> objects;
  collect_objects(root, objects);
  if (objects.empty()) return;
  json& object = *objects[random.one_in(3) ? random.below(objects.size()) : 0];
  if (object.empty() || random.one_in(8)) {
    const auto& [name, value] = random.pick(known_);
    object[name] = random.one_in(2) ? value : edge_value(random);
    return;
  }
  const auto member =
      std::next(object.begin(), static_cast<ptrdiff_t>(random.below(object.size())));
  const std::string name = member.key();
  switch (random.below(10)) {
    case 0:
      object.erase(name);
      return;
    case 1:
      object[name + std::string(kTwice)] = edge_value(random);
      return;
    case 2: {  // the value under another name
      json value = std::move(member.value());
      object.erase(name);
      object[random.pick(known_).first] = std::move(value);
      return;
    }
    case 3:
      member.value() = random.pick(known_).second;
      return;
    case 4:
      member.value() = json::array({member.value()});
      return;
    case 5:
    case 6:
    case 7:
      member.value() = near_value(member.value(), random);
      return;
    default:
      member.value() = edge_value(random);
  }
}

std::string to_json_text(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  for (const auto& [spelling, meaning] :
       {std::pair{kNotANumber, "NaN"}, std::pair{kInfinity, "Infinity"},
        std::pair{kMinusInfinity, "-Infinity"}}) {
    replace_all(text, spelled(spelling, true), meaning);
  }
  replace_all(text, spelled(kTwice, false) + "\":", "\":");
  return text;
}

}  // namespace ferry::test
