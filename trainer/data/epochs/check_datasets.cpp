#include "trainer/data/epochs/check_datasets.h"

namespace ferry {

std::vector<int64_t> elements_to_check(int64_t size, const DatasetCheckOptions& options) {
  if (size < 1) fail(ErrorKind::invalid, "a dataset without items cannot be checked");
  if (options.items < 1 || options.epochs < 1) {
    fail(ErrorKind::invalid, "{} items of {} epochs are to be checked; at least 1 of each can be",
         options.items, options.epochs);
  }
  std::set<int64_t> elements{0};
  if (options.items > 1) elements.insert(size - 1);
  std::mt19937_64 random(options.seed);
  const auto count = static_cast<size_t>(std::min(size, options.items));
  if (count == static_cast<uint64_t>(size)) {
    std::vector<int64_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  while (elements.size() < count) {
    elements.insert(static_cast<int64_t>(random() % static_cast<uint64_t>(size)));
  }
  return {elements.begin(), elements.end()};
}

std::vector<size_t> order_of_copy(size_t count, size_t copy, uint32_t seed) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  if (copy == 1) std::reverse(order.begin(), order.end());
  if (copy > 1) {
    std::mt19937_64 random(seed + copy);
    std::shuffle(order.begin(), order.end(), random);
  }
  return order;
}

}  // namespace ferry
