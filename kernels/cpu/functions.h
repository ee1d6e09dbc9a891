// Functions of sixteen numbers. Polynomials are our own minimax fits with successively rounded
// coefficients. The errors were measured over all floats of the stated range.
#pragma once

#include "kernels/cpu/vector.h"

namespace ferry::kernels::FERRY_KERNELS_TARGET {

FERRY_INLINE Float absolute(Float x) { return bits_of<Float>(bits_of<UInt>(x) & 0x7FFFFFFF); }
FERRY_INLINE Float with_sign(Float magnitude, Float sign) {
  return bits_of<Float>(bits_of<UInt>(magnitude) | (bits_of<UInt>(sign) & 0x80000000));
}
/// NaN if x is.
FERRY_INLINE Float at_least(Float x, float low) { return x < low ? all(low) : x; }
FERRY_INLINE Float at_most(Float x, float high) { return x > high ? all(high) : x; }

/// 2^n for n in [-126, 127].
FERRY_INLINE Float power_of_two(Int n) { return bits_of<Float>((n + 127) << 23); }

/// e^x, all floats: within 2 ulp; subnormal results are kept.
FERRY_INLINE Float exp(Float value) {
  const Float x = at_most(at_least(value, -104.0F), 89.0F);
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to an integer
  const Float shifted = x * 0x1.715476p0F + kRound;
  const Float n = shifted - kRound;
  // ln 2 in two parts; n times the first is exact.
  const Float r = (x - n * 0x1.62ep-1F) - n * 0x1.0bfbe8p-15F;
  Float p = all(0x1.6d781p-10F);
  p = p * r + 0x1.123adap-7F;
  p = p * r + 0x1.5554c2p-5F;
  p = p * r + 0x1.555490p-3F;
  p = p * r + 0.5F;
  const Float power = p * r * r + r + 1.0F;
  const Int exponent = bits_of<Int>(shifted) - bits_of<Int>(all(kRound));
  const Int half = exponent >> 1;
  return power * power_of_two(half) * power_of_two(exponent - half);
}

/// Natural logarithm of normal positive numbers: within 2 ulp.
FERRY_INLINE Float log(Float x) {
  // x = 2^n · (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  const Int bits = bits_of<Int>(x) - 0x3F3504F3;
  const Float n = __builtin_convertvector(bits >> 23, Float);
  const Float f = bits_of<Float>((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0F;
  Float p = all(0x1.1484e8p-4F);
  p = p * f - 0x1.de1004p-4F;
  p = p * f + 0x1.e6c03ep-4F;
  p = p * f - 0x1.fc26acp-4F;
  p = p * f + 0x1.233b78p-3F;
  p = p * f - 0x1.555c4ep-3F;
  p = p * f + 0x1.99a478p-3F;
  p = p * f - 0x1.000006p-2F;
  p = p * f + 0x1.555548p-2F;
  const Float square = f * f;
  const Float tail = p * square * f + n * 0x1.0bfbe8p-15F;
  return n * 0x1.62ep-1F + (f + (tail - 0.5F * square));
}

/// 1 / (1 + e^-x): within 3 ulp for normal results.
FERRY_INLINE Float sigmoid(Float x) { return 1.0F / (1.0F + exp(-x)); }

/// Within 2 ulp.
FERRY_INLINE Float tanh(Float x) {
  const Float t = absolute(x), s = x * x;
  Float p = all(-0x1.6f32a4p-8F);
  p = p * s + 0x1.50b3f0p-6F;
  p = p * s - 0x1.b805d4p-5F;
  p = p * s + 0x1.11059ap-3F;
  p = p * s - 0x1.55552cp-2F;
  const Float small = x + x * s * p;
  const Float large = 1.0F - 2.0F / (exp(t + t) + 1.0F);
  return t < 0.625F ? small : with_sign(large, x);
}

/// e^x - 1 for x <= 0, from the hyperbolic tangent of x / 2: within 4 ulp.
FERRY_INLINE Float exp_less_one(Float x) {
  const Float t = tanh(0.5F * x);
  return 2.0F * t / (1.0F - t);
}

/// The error function: within 2 ulp.
FERRY_INLINE Float erf(Float x) {
  const Float t = absolute(x), s = x * x;
  Float p = all(-0x1.398912p-11F);
  p = p * s + 0x1.4723dep-8F;
  p = p * s - 0x1.b689b6p-6F;
  p = p * s + 0x1.ce1a88p-4F;
  p = p * s - 0x1.8126e8p-2F;
  p = p * s + 0x1.06eba6p-3F;
  const Float small = x + x * p;
  const Float u = at_most(t, 4.0F);
  Float q = all(0x1.4b9a58p-18F);
  q = q * u - 0x1.7ea1cep-15F;
  q = q * u - 0x1.9ec9dap-15F;
  q = q * u + 0x1.8004bep-9F;
  q = q * u - 0x1.737c5ap-6F;
  q = q * u + 0x1.af2798p-4F;
  q = q * u + 0x1.4570b2p-1F;
  q = q * u + 0x1.20e8c4p+0F;
  const Float large = 1.0F - exp(-(q * u));
  return t < 0.92F ? small : with_sign(large, x);
}

/// Cosine and sine of 2π·turn for turn in [0, 1): to 1e-7.
FERRY_INLINE void circle(Float turn, Float& cosine, Float& sine) {
  constexpr float kRound = 0x1.8p23F;
  const Float quarters = turn * 4.0F;
  const Float shifted = quarters + kRound;
  const Float t = quarters - (shifted - kRound), s = t * t;
  const Int quadrant = bits_of<Int>(shifted) & 3;
  Float a = all(-0x1.3351aap-8F), b = all(0x1.d4748p-11F);
  a = ((a * s + 0x1.4681b6p-4F) * s - 0x1.4abc26p-1F) * s + 0x1.921fb6p+0F;
  b = ((b * s - 0x1.55b138p-6F) * s + 0x1.03c1aep-2F) * s - 0x1.3bd3ccp+0F;
  const Float by_sine = a * t, by_cosine = b * s + 1.0F;
  const Float c = (quadrant & 1) != 0 ? by_sine : by_cosine;
  const Float d = (quadrant & 1) != 0 ? by_cosine : by_sine;
  cosine = (quadrant == 1) | (quadrant == 2) ? -c : c;
  sine = quadrant >= 2 ? -d : d;
}

}  // namespace ferry::kernels::FERRY_KERNELS_TARGET
