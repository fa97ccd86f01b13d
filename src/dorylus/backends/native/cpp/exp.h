// A vector exponential: relative error below 2e-7 on the whole range; 0 below -87.3, infinity above 88.7, NaN for NaN.
#pragma once

#include "vec.h"

namespace dorylus::DORYLUS_ISA {

// exp(x) = 2^n * exp(r) with n the integer nearest to x / ln 2; the polynomial in r is that of Cephes' expf.
template <int W> DORYLUS_INLINE F32<W> exp_of(F32<W> x) {
  const F32<W> low = splat<W>(-87.3f), high = splat<W>(88.7f);
  const F32<W> t = x < low ? low : (x > high ? high : x);  // a NaN is neither, and goes through
  const float magic = 12582912.0f;                         // 1.5 * 2^23: adding it rounds to an integer
  const F32<W> shifted = t * 1.44269504088896341f + magic;
  const F32<W> n = shifted - magic;
  const F32<W> r = (t - n * 0.693359375f) - n * -2.12194440e-4f;
  F32<W> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const I32<W> exponent = ((I32<W>)shifted - (I32<W>)splat<W>(magic)) << 23;
  const F32<W> result = (F32<W>)((I32<W>)p + exponent);
  return x < low ? F32<W>{} : (x > high ? splat<W>(__builtin_inff()) : result);
}

}  // namespace dorylus::DORYLUS_ISA
