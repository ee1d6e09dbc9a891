// The index of a sharded model: which file holds which tensor.
#include <algorithm>

#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/json_events.h"

namespace ferry {
namespace {

class IndexEvents final : public JsonEvents {
 public:
  using JsonEvents::JsonEvents;

  std::vector<std::pair<std::string, std::string>> weight_map;
  bool has_weight_map = false;

 private:
  enum class State { start, top, map_value, map, file, done };

  bool take_object() override {
    if (state_ == State::start) {
      state_ = State::top;
    } else if (state_ == State::map_value) {
      state_ = State::map;
    } else {
      refuse("an object");
    }
    return true;
  }

  bool take_key(std::string& name) override {
    if (state_ == State::map) {
      weight_map.emplace_back(std::move(name), std::string());
      state_ = State::file;
    } else if (name != "weight_map") {
      skip();
    } else if (has_weight_map) {
      fail(ErrorKind::corrupt, "{}: it has weight_map twice", what());
    } else {
      has_weight_map = true;
      state_ = State::map_value;
    }
    return true;
  }

  bool take_string(std::string& value) override {
    if (state_ != State::file) refuse("a string");
    weight_map.back().second = std::move(value);
    state_ = State::map;
    return true;
  }

  bool end_of_object() override {
    state_ = state_ == State::map ? State::top : State::done;
    return true;
  }

  std::string expected() const override {
    return state_ == State::start ? "an index must be one object"
                                  : "weight_map must map tensors to file names";
  }

  State state_ = State::start;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_weight_map(const std::string& text,
                                                                  const std::string& path) {
  IndexEvents events(path);
  parse_events(text, events);
  if (!events.has_weight_map) {
    fail(ErrorKind::corrupt, "{}: has no weight_map, which says where each tensor is", path);
  }
  std::vector<std::string_view> names;
  names.reserve(events.weight_map.size());
  for (const auto& [name, file] : events.weight_map) names.push_back(name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    fail(ErrorKind::corrupt, "{}: tensor {} is in weight_map twice", path, *twice);
  }
  return std::move(events.weight_map);
}

}  // namespace ferry
