// A dataset class of one's own, sampled over epochs and checked against the data contract:
//
//   build/release/examples/dataset
//
// The dataset is points on a circle; in each epoch every point is moved a little, by random numbers
// that follow from the epoch and the point alone.
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>

#include "trainer/data/epochs/check_datasets.h"
#include "trainer/data/epochs/datasets.h"

struct Point {
  double x = 0, y = 0;
  bool operator==(const Point&) const = default;
};

class Circle final : public ferry::ItemDataset<Point> {
 public:
  explicit Circle(int64_t points) : points_(points) {}
  int64_t size() const noexcept override { return points_; }
  Point read(int64_t index) const override {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(index) / static_cast<double>(points_);
    return {std::cos(angle), std::sin(angle)};
  }

 private:
  int64_t points_;
};

std::shared_ptr<const ferry::MultiEpochDataset<Point>> moved_circle() {
  return std::make_shared<ferry::TransformedDataset<Point>>(
      std::make_shared<Circle>(1000), [](Point point, ferry::EpochIndex at) {
        auto random = ferry::random_of(1234, at);
        std::normal_distribution<double> noise(0, 0.01);
        return Point{point.x + noise(random), point.y + noise(random)};
      });
}

int main() {
  const auto circle = moved_circle();
  const ferry::ResampledDataset<Point> samples(
      circle, {.size = circle->size(), .epochs = 3, .samples = {}, .seed = 7});
  std::printf("%lld samples, the first:\n", static_cast<long long>(samples.size()));
  for (int64_t i = 0; i < 3; ++i) {
    const Point point = samples.read(i);
    std::printf("  %+.4f %+.4f\n", point.x, point.y);
  }
  // Two copies, as two ranks that compute one sample together make it.
  const auto other = moved_circle();
  const auto report = ferry::check_datasets<Point>({circle.get(), other.get()}, {});
  std::printf("%lld reads: the dataset %s the data contract\n",
              static_cast<long long>(report.reads), report.kept() ? "keeps to" : "breaks");
  return report.kept() ? 0 : 1;
}
