// The kernels' arguments, and the table of functions that every instruction set fills; one table is chosen at run time.
#pragma once

#include "types.h"

namespace dorylus {

// x is float32 or bfloat16 (the table has a function for each); the other matrices are float32.
struct SpmmArgs {
  Csr csr;
  const void* x;
  int64_t x_stride, num_sources;
  Rows<float> out;
  int64_t width;
  Range range;
  const float* values;
  const float* row_scale;
  const float* col_scale;
  bool mean;
  bool accumulate;
};

struct MaxArgs {
  Csr csr;  // indices null: edge e reads row e - indptr[range.begin], as messages kept in edge order do
  const void* x;
  int64_t x_stride;
  Rows<float> out, ties;
  int64_t width;
  Range range;
};

struct MaxGradArgs {
  Csr csr;  // transposed: rows are sources. indices null: segment_max_grad, rows are destinations
  const void* x;
  int64_t x_stride;
  Rows<const float> out, dout_per_tie;
  Rows<float> dx;
  int64_t width;
  Range range;
  bool accumulate;
};

struct OuterArgs {
  Csr csr;
  const float* values;
  Rows<const float> dz;
  Rows<float> dw;
  int64_t width;
  Range range;
};

// One pass of softmax-weighted gathering. Forward: rows are destinations; backward: rows are sources, and rows_in is
// dout.
struct AttentionArgs {
  Csr csr;              // indices null: edge e reads row e - indptr[range.begin]
  const void* rows_in;  // z, or messages
  int64_t rows_in_stride;
  int64_t width, heads;
  Range range;
  float slope;
  Rows<const float> s_src, s_dst;        // s_dst null: zeros
  Rows<float> out, lse, out_pos, a_pos;  // the last two null in evaluation, lse too
  const DropStream* drop;                // null: none
  const int32_t* ids;
};

struct AttentionGradArgs {
  Csr csr;
  const void* rows_in;  // dout
  int64_t rows_in_stride;
  int64_t width, heads;
  Range range;
  float slope;
  Rows<const float> s_src, s_dst, lse, delta;
  const void* z;
  int64_t z_stride;
  bool z_bf16;
  Rows<float> dz, ds_src;
  const DropStream* drop;
  const int32_t* ids;
  bool accumulate;
};

struct AttentionGradDstArgs {
  Rows<const float> out, out_pos, a_pos;
  const void* dout;
  int64_t dout_stride;
  Rows<float> delta, ds_dst;
  int64_t width, heads;
  Range range;
  float slope;
};

struct SegmentArgs {  // sum: messages to out; spread: out to messages
  const int64_t* indptr;
  Rows<float> messages, out;
  int64_t width;
  Range range;
  const float* row_scale;
  bool accumulate;
};

struct SoftmaxGradArgs {
  const int64_t* indptr;
  Rows<const float> scores, messages, out, lse, dout;
  Rows<float> dscores, dmessages;
  int64_t width, heads;
  Range range;
};

struct RowsArgs {  // gather: out[k] = x[index[k]]; scatter: out[index[k]] += x[k]; conversions: no index, rows of the
                   // range
  const void* x;
  int64_t x_stride;
  void* out;
  int64_t out_stride;
  int64_t width;
  const int32_t* index;
  Range range;
};

struct DropoutArgs {
  Rows<float> x;
  void* out;
  int64_t out_stride;
  int64_t width;
  int64_t first_column;  // of the whole matrix, where x are some columns of it; a multiple of 4
  const int32_t* ids;
  Range range;
  DropStream stream;
};

struct DropoutCsrArgs {
  Csr csr;
  const float* values;
  float* out_values;
  const int32_t* ids;
  Range range;
  DropStream stream;
};

// X(result, name, arguments): every kernel, in one list that declares, defines and fills the tables. The suffix _bf16
// marks the variant whose x (or out, for dropout and to_bf16) is bfloat16.
#define DORYLUS_KERNELS(X)                               \
  X(void, spmm, SpmmArgs)                                \
  X(void, spmm_bf16, SpmmArgs)                           \
  X(double, gather_limit, SpmmArgs)                      \
  X(void, spmm_max, MaxArgs)                             \
  X(void, spmm_max_bf16, MaxArgs)                        \
  X(void, spmm_max_grad, MaxGradArgs)                    \
  X(void, spmm_max_grad_bf16, MaxGradArgs)               \
  X(void, segment_max_grad, MaxGradArgs)                 \
  X(void, spmm_outer, OuterArgs)                         \
  X(void, attention, AttentionArgs)                      \
  X(void, attention_bf16, AttentionArgs)                 \
  X(void, attention_grad_src, AttentionGradArgs)         \
  X(void, attention_grad_src_bf16, AttentionGradArgs)    \
  X(void, attention_grad_dst, AttentionGradDstArgs)      \
  X(void, attention_grad_dst_bf16, AttentionGradDstArgs) \
  X(void, segment_sum, SegmentArgs)                      \
  X(void, segment_spread, SegmentArgs)                   \
  X(void, segment_softmax_grad, SoftmaxGradArgs)         \
  X(void, gather_rows, RowsArgs)                         \
  X(void, gather_rows_bf16, RowsArgs)                    \
  X(void, scatter_add_rows, RowsArgs)                    \
  X(void, to_bf16, RowsArgs)                             \
  X(void, from_bf16, RowsArgs)                           \
  X(void, dropout, DropoutArgs)                          \
  X(void, dropout_bf16, DropoutArgs)                     \
  X(void, dropout_csr, DropoutCsrArgs)

struct Table {
  const char* name;
#define DORYLUS_MEMBER(result, name, Args) result (*name)(const Args&);
  DORYLUS_KERNELS(DORYLUS_MEMBER)
#undef DORYLUS_MEMBER
};

const Table& chosen();  // the table in use

#define DORYLUS_DECLARE_ISA(isa) \
  namespace isa {                \
  extern const Table table;      \
  }
DORYLUS_DECLARE_ISA(avx512)
DORYLUS_DECLARE_ISA(avx2)
DORYLUS_DECLARE_ISA(neon)
DORYLUS_DECLARE_ISA(baseline)
#undef DORYLUS_DECLARE_ISA

}  // namespace dorylus
