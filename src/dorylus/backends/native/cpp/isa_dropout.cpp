// Dropout whose mask is a function of (seed, epoch, layer, original vertex, column): it does not depend on how the work
// is divided.
#include "isa.h"
#include "philox.h"

namespace dorylus::DORYLUS_ISA {

namespace {

constexpr int kColumns = 4 * kCounters;  // columns that one draw serves: two vectors of kLanes
static_assert(kColumns == 2 * kLanes);

template <class Out> DORYLUS_INLINE void drop_vector(const float* x, Out* out, U32<kLanes> words, const DropStream& s) {
  const F32<kLanes> kept = load<kLanes>(x) * s.scale;
  store_as<kLanes>(out, words >= s.threshold ? kept : F32<kLanes>{});
}

template <class Out>
DORYLUS_INLINE void drop_tail(const float* x, Out* out, U32<kLanes> words, const DropStream& s, int64_t count) {
  F32<kLanes> padded = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = x[i];
  Out result[kLanes];
  drop_vector(reinterpret_cast<const float*>(&padded), result, words, s);
  for (int64_t i = 0; i < count; ++i) out[i] = result[i];
}

template <class Out> void dropout_of(const DropoutArgs& a) {
  const Lanes groups = groups_of_lanes();
  const Rows<Out> out{static_cast<Out*>(a.out), a.out_stride};
  for (int64_t v = a.range.begin; v < a.range.end; ++v) {
    const Lanes id = Lanes{} + uint64_t(uint32_t(a.ids[v]));
    for (int64_t column = 0; column < a.width; column += kColumns) {
      const ColumnWords words = in_column_order(draw(a.stream, id, groups + uint64_t((a.first_column + column) / 4), a.stream.layer));
      for (int half = 0; half < 2; ++half) {
        const int64_t at = column + half * kLanes, left = a.width - at;
        if (left >= kLanes) drop_vector(a.x[v] + at, out[v] + at, words.half[half], a.stream);
        else if (left > 0) drop_tail(a.x[v] + at, out[v] + at, words.half[half], a.stream, left);
      }
    }
  }
}

// Word j of lane i, for j = which[i].
DORYLUS_INLINE Lanes pick(const Words& words, Lanes which) {
  const Lanes low = which == 0 ? words.w[0] : words.w[1], high = which == 2 ? words.w[2] : words.w[3];
  return (which < 2 ? low : high) & 0xffffffffull;
}

}  // namespace

// Non-zeros in the lanes: each has a counter of its own, because their columns are arbitrary.
void dropout_csr(const DropoutCsrArgs& a) {
  for (int64_t v = a.range.begin; v < a.range.end; ++v) {
    const Lanes id = Lanes{} + uint64_t(uint32_t(a.ids[v]));
    for (int64_t e = a.csr.indptr[v]; e < a.csr.indptr[v + 1]; e += kCounters) {
      const int64_t left = a.csr.indptr[v + 1] - e, used = left < kCounters ? left : kCounters;
      Lanes column = {};
      for (int64_t lane = 0; lane < used; ++lane) column[lane] = uint32_t(a.csr.indices[e + lane]);
      const Lanes word = pick(draw(a.stream, id, column >> 2, a.stream.layer), column & 3);
      for (int64_t lane = 0; lane < used; ++lane)
        a.out_values[e + lane] = word[lane] >= a.stream.threshold ? a.values[e + lane] * a.stream.scale : 0.0f;
    }
  }
}

void dropout(const DropoutArgs& a) { dropout_of<float>(a); }
void dropout_bf16(const DropoutArgs& a) { dropout_of<uint16_t>(a); }

}  // namespace dorylus::DORYLUS_ISA
