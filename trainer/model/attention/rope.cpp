#include "trainer/model/attention/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ferry {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Llama 3.1: long wavelengths are scaled, those between two bounds partially.
double scale_llama3(const Architecture& a, double frequency) {
  const auto original = static_cast<double>(a.rope_original_positions);
  const double wavelength = kTurn / frequency;
  if (wavelength > original / a.rope_low_freq_factor) return frequency / a.rope_factor;
  if (wavelength < original / a.rope_high_freq_factor) return frequency;
  const double smooth = (original / wavelength - a.rope_low_freq_factor) /
                        (a.rope_high_freq_factor - a.rope_low_freq_factor);
  return (1 - smooth) * frequency / a.rope_factor + smooth * frequency;
}

// YaRN: high frequencies are kept, low ones are interpolated.
class Yarn {
 public:
  Yarn(const Architecture& a, int64_t dim) : factor_(a.rope_factor) {
    const auto pair_of = [&](double turns) {
      return static_cast<double>(dim) *
             std::log(static_cast<double>(a.rope_original_positions) / (turns * kTurn)) /
             (2 * std::log(a.rope_theta));
    };
    const double low = pair_of(a.rope_beta_fast), high = pair_of(a.rope_beta_slow);
    low_ = std::max(a.rope_truncates ? std::floor(low) : low, 0.0);
    high_ = std::min(a.rope_truncates ? std::ceil(high) : high, static_cast<double>(dim - 1));
    if (low_ == high_) high_ += 0.001;
  }

  double scale(double frequency, int64_t pair) const {
    const double ramp = std::clamp((static_cast<double>(pair) - low_) / (high_ - low_), 0.0, 1.0);
    return frequency / factor_ * ramp + frequency * (1 - ramp);
  }

 private:
  double factor_, low_, high_;
};

double yarn_magnitude(double factor, double coefficient) {
  return factor <= 1 ? 1 : 0.1 * coefficient * std::log(factor) + 1;
}

// The factor of cosines and sines.
double magnitude(const Architecture& a) {
  if (a.rope_scaling != RopeScaling::yarn) return 1;
  return yarn_magnitude(a.rope_factor, a.rope_mscale) /
         yarn_magnitude(a.rope_factor, a.rope_mscale_all_dim);
}

}  // namespace

RopeTable rope_table(const Architecture& a, std::span<const int64_t> positions) {
  RopeTable table;
  // Latent attention always has rotary positions, whatever the position embedding type is.
  if (a.position_kind != Positions::rope && !a.mla) return table;
  table.dim = a.mla ? a.qk_rope_dim : a.rotary_dim();
  const int64_t pairs = table.dim / 2;
  const int64_t part = a.mla ? a.qk_rope_dim : a.rotary_part();
  const Yarn yarn(a, part);
  std::vector<float> frequencies;
  for (int64_t pair = 0; pair < pairs; ++pair) {
    double frequency =
        1 / std::pow(a.rope_theta, static_cast<double>(2 * pair) / static_cast<double>(part));
    if (a.rope_scaling == RopeScaling::linear) frequency /= a.rope_factor;
    if (a.rope_scaling == RopeScaling::llama3) frequency = scale_llama3(a, frequency);
    if (a.rope_scaling == RopeScaling::yarn) frequency = yarn.scale(frequency, pair);
    frequencies.push_back(static_cast<float>(frequency));
  }
  const double size = magnitude(a);
  for (const int64_t position : positions) {
    for (const float frequency : frequencies) {
      const double angle = static_cast<double>(static_cast<float>(position) * frequency);
      table.cosine.push_back(static_cast<float>(std::cos(angle) * size));
      table.sine.push_back(static_cast<float>(std::sin(angle) * size));
    }
  }
  return table;
}

double attention_scale(const Architecture& a) {
  const double dim = static_cast<double>(a.mla ? a.qk_nope_dim + a.qk_rope_dim : a.head_dim);
  const bool is_stretched = a.mla && a.rope_scaling == RopeScaling::yarn;
  const double size = is_stretched ? yarn_magnitude(a.rope_factor, a.rope_mscale_all_dim) : 1;
  return size * size / std::sqrt(dim);
}

}  // namespace ferry
