#include "trainer/checkpoint/float8_scaling.h"

#include <algorithm>
#include <array>
#include <cfloat>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"

namespace ferry {
namespace {

// In the order of the enum Float8Tensor.
constexpr std::array<const char*, 3> kTensors{"input", "weight", "gradient"};

// One tensor's numbers: 1, its scale, its history (newest first).
void read_tensor(const Value& tensor, std::span<double> to, const std::string& what) {
  const Value history = tensor.get("amax_history");
  const auto scale = tensor.get("scale").real();
  if (!scale || history.kind() != ValueKind::list) return;
  const auto check = [&](double number, bool fits, const char* expected) {
    if (fits) return;
    fail(ErrorKind::corrupt,
         "{} is {}, expected {}: drop the FP8 scales by starting with --finetune, or use another "
         "checkpoint",
         what, number, expected);
  };
  check(*scale, *scale >= FLT_MIN && *scale <= FLT_MAX, "a scale");
  to[0] = 1;
  to[1] = *scale;
  for (size_t age = 0; age < std::min(history.size(), to.size() - 2); ++age) {
    const double maximum = history[age].real().value_or(-1);
    check(maximum, maximum >= 0, "a magnitude");
    to[2 + age] = maximum;
  }
}

}  // namespace

LoadedValue write_float8_scaling(const std::vector<std::string>& names,
                                 std::span<const double> numbers) {
  if (std::ranges::all_of(numbers, [](double number) { return number == 0; })) return {};
  Draft draft;
  const Value all = draft.dict();
  const size_t size = numbers.size() / names.size() / kTensors.size();
  for (const std::string& name : names) {
    const Value linear = draft.dict();
    bool is_known = false;
    for (const char* const tensor : kTensors) {
      const std::span<const double> own = numbers.first(size);
      numbers = numbers.subspan(size);
      if (own[0] == 0) continue;
      is_known = true;
      const Value one = draft.dict(), history = draft.list();
      for (const double maximum : own.subspan(2)) draft.append(history, draft.real(maximum));
      draft.put(one, "scale", draft.real(own[1]));
      draft.put(one, "amax_history", history);
      draft.put(linear, tensor, one);
    }
    if (is_known) draft.put(all, name, linear);
  }
  return std::move(draft).finish(all);
}

std::vector<double> read_float8_scaling(const Value& value, const std::vector<std::string>& names,
                                        int64_t numbers_of_tensor, const std::string& path) {
  const auto size = static_cast<size_t>(numbers_of_tensor);
  std::vector<double> numbers(names.size() * kTensors.size() * size);
  std::span<double> rest(numbers);
  for (const std::string& name : names) {
    const Value linear = value.get(name);
    for (const char* const tensor : kTensors) {
      read_tensor(linear.get(tensor), rest.first(size),
                  path + ": " + kFloat8Scaling + " of " + name + " (" + tensor + ")");
      rest = rest.subspan(size);
    }
  }
  return numbers;
}

}  // namespace ferry
