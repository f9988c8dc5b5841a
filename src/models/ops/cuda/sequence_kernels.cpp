#include "models/ops/cuda/sequence_kernels.hpp"

#include <cmath>
#include <cstddef>
#include <type_traits>

#include "core/device/cuda/native.hpp"
#include "core/tensor/computed.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/cuda/aligned.hpp"
#include "models/ops/cuda/sequence_launch.hpp"
#include "models/ops/cuda/typed.hpp"
#include "models/ops/sequence_checks.hpp"
#include "models/ops/with_type.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::check_cuda;
using lockstep::detail::native;

constexpr auto no = Kernels::Transpose::no, yes = Kernels::Transpose::yes;

IndexedRows indexed(const TensorView& table, const TensorView& indices) {
  return {.indices = data<const std::int32_t>(indices),
          .count = indices.count(),
          .entries = table.shape()[0],
          .width = table.shape()[1]};
}

template <class T>
NormRows<T> norm_rows(const TensorView& x, const TensorView& gain) {
  return {.x = data<const T>(x),
          .gain = data<const detail::computed_t<T>>(gain),
          .rows = x.shape()[0],
          .width = x.shape()[1]};
}

/// Where the operands of a window lie. Its heads are computed together, as one batch of products. Windows are computed
/// one after the other, because the algorithm of a batch, and so the bits, must not depend on how many windows a shard
/// has.
template <class T>
class Window {
 public:
  Window(const AttentionSizes& sizes, std::int64_t window) : sizes_{sizes}, window_{window} {}

  T* queries(void* qkv) const { return part(qkv, 0); }
  T* keys(void* qkv) const { return part(qkv, 1); }
  T* values(void* qkv) const { return part(qkv, 2); }

  /// Of rows [positions, width].
  T* columns(void* rows) const { return static_cast<T*>(rows) + window_ * sizes_.context * sizes_.width(); }
  /// Of numbers [windows, heads, context], one for each row of scores.
  detail::computed_t<T>* rows_of_scores(detail::computed_t<T>* all) const {
    return all + window_ * sizes_.heads * sizes_.context;
  }

 private:
  T* part(void* qkv, std::int64_t which) const {
    return static_cast<T*>(qkv) + (window_ * sizes_.context * 3 + which) * sizes_.width();
  }

  const AttentionSizes& sizes_;
  std::int64_t window_;
};

/// Matrices [context, head_width] of all heads side by side, or [context, context] of one head after another.
struct Operand {
  void* data;
  std::int64_t row_stride;
  std::int64_t stride;
};

class HeadProducts {
 public:
  HeadProducts(const Products& products, const AttentionSizes& sizes, DType dtype)
      : products_{products}, sizes_{sizes}, dtype_{dtype} {}

  Operand in_qkv(void* data) const { return {data, 3 * sizes_.width(), sizes_.head_width}; }
  Operand in_rows(void* data) const { return {data, sizes_.width(), sizes_.head_width}; }
  Operand scores(void* data) const { return {data, sizes_.context, sizes_.context * sizes_.context}; }

  /// c [context, context] = scale * a · transposed b. Scores are not rounded to bf16 yet.
  void to_scores(double scale, const Operand& a, const Operand& b, const Operand& c) const {
    multiply({sizes_.context, sizes_.context, sizes_.head_width}, scale, a, no, b, yes, sum_type(dtype_), c);
  }
  /// c [context, head_width] = scale * op(a) · b.
  void from_scores(double scale, const Operand& a, Kernels::Transpose transpose_a, const Operand& b,
                   const Operand& c) const {
    multiply({sizes_.context, sizes_.head_width, sizes_.context}, scale, a, transpose_a, b, no, dtype_, c);
  }

 private:
  void multiply(const MatmulSizes& sizes, double scale, const Operand& a, Kernels::Transpose transpose_a,
                const Operand& b, Kernels::Transpose transpose_b, DType result, const Operand& c) const {
    products_.multiply({.types = {dtype_, result},
                        .sizes = sizes,
                        .count = sizes_.heads,
                        .scale = scale,
                        .a = a.data,
                        .transpose_a = transpose_a,
                        .b = b.data,
                        .transpose_b = transpose_b,
                        .c = c.data,
                        .row_strides = {a.row_stride, b.row_stride, c.row_stride},
                        .strides = {a.stride, b.stride, c.stride}});
  }

  const Products& products_;
  const AttentionSizes& sizes_;
  DType dtype_;
};

double score_scale(const AttentionSizes& sizes) {
  return 1 / std::sqrt(static_cast<double>(sizes.head_width));
}

/// Memory for the scores of one window's heads.
template <class T>
class Scores {
 public:
  Scores(const AttentionSizes& sizes, const Scratch& scratch)
      : bytes_{aligned(count(sizes) * sizeof(detail::computed_t<T>))},
        memory_{scratch, in_place ? bytes_ : bytes_ + count(sizes) * sizeof(T)} {}

  detail::computed_t<T>* data() const { return reinterpret_cast<detail::computed_t<T>*>(memory_.data()); }

  /// For the probabilities: in the place of the scores, or beside them if they are bf16.
  T* probabilities() const { return reinterpret_cast<T*>(memory_.data() + (in_place ? 0 : bytes_)); }

 private:
  static constexpr bool in_place = std::is_same_v<T, detail::computed_t<T>>;

  static std::size_t count(const AttentionSizes& sizes) {
    return static_cast<std::size_t>(sizes.heads * sizes.context * sizes.context);
  }
  static std::size_t aligned(std::size_t bytes) {
    return (bytes + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment;
  }

  std::size_t bytes_;
  Scratch::Use memory_;
};

/// Both passes compute them here, to the same bits.
template <class T>
void compute_scores(const HeadProducts& heads, const AttentionSizes& sizes, const Window<T>& at, void* qkv,
                    const Scores<T>& scores) {
  heads.to_scores(score_scale(sizes), heads.in_qkv(at.queries(qkv)), heads.in_qkv(at.keys(qkv)),
                  heads.scores(scores.data()));
}

}  // namespace

Answer<void> CudaSequenceKernels::gather_rows(const TensorView& table, const TensorView& indices,
                                              const TensorView& rows) const {
  check_indexed_rows(here, "gather_rows", table, indices, rows, rows);
  if (indices.count() == 0) return {};
  const IndexedRows which = indexed(table, indices);
  const Answers::Call call{answers_, sizeof(BadIndex)};
  auto* const bad = reinterpret_cast<BadIndex*>(call.memory());
  check_cuda(launch_check_indices(which, bad, native(stream_)), "the launch of gather_rows");
  if (rows.count() > 0)
    with_stored_type(table.dtype(), [&]<class T>() {
      check_cuda(launch_gather_rows(which, bad, data<const T>(table), data<T>(rows), native(stream_)),
                 "the launch of gather_rows");
    });
  return {stream_, [first = call.send<BadIndex>(), count = which.count, table] {
            if (first->position < count) throw index_outside("gather_rows", first->index, first->position, table);
          }};
}

void CudaSequenceKernels::scatter_add_rows(const TensorView& rows, const TensorView& indices,
                                           const TensorView& table) const {
  check_indexed_rows(here, "scatter_add_rows", table, indices, rows, table);
  if (rows.count() == 0 || table.count() == 0) return;
  with_stored_type(rows.dtype(), [&]<class T>() {
    check_cuda(launch_scatter_add_rows(indexed(table, indices), data<const T>(rows), data<detail::computed_t<T>>(table),
                                       native(stream_)),
               "the launch of scatter_add_rows");
  });
}

void CudaSequenceKernels::layer_norm(const LayerNorm& operands) const {
  check_layer_norm(here, operands);
  if (operands.x.shape()[0] == 0) return;
  with_stored_types(operands.x.dtype(), operands.y.dtype(), [&]<class X, class Y>() {
    using Number = detail::computed_t<X>;
    check_cuda(launch_layer_norm(norm_rows<X>(operands.x, operands.gain), data<const Number>(operands.bias),
                                 static_cast<Number>(operands.epsilon), data<Y>(operands.y),
                                 data<Number>(operands.moments), native(stream_)),
               "the launch of layer_norm");
  });
}

void CudaSequenceKernels::layer_norm_gradient(const LayerNormGradient& operands) const {
  check_layer_norm(here, operands);
  const auto& [x, gain, moments, dy, dx, d_gain, d_bias] = operands;
  if (x.shape()[1] == 0) return;
  with_stored_types(x.dtype(), dy.dtype(), [&]<class X, class Y>() {
    using Number = detail::computed_t<X>;
    const NormRows<X> of = norm_rows<X>(x, gain);
    // First the sums, which read dy: dx may be dy.
    check_cuda(launch_layer_norm_sums(of, data<const Number>(moments), data<const Y>(dy), data<Number>(d_gain),
                                      data<Number>(d_bias), native(stream_)),
               "the launch of layer_norm_gradient");
    if (of.rows == 0) return;
    check_cuda(
        launch_layer_norm_gradient(of, data<const Number>(moments), data<const Y>(dy), data<X>(dx), native(stream_)),
        "the launch of layer_norm_gradient");
  });
}

void CudaSequenceKernels::gelu(const TensorView& x, const TensorView& y) const {
  check_same_or_apart(here, "gelu", x, y);
  if (x.count() == 0) return;
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(launch_gelu(data<const T>(x), data<T>(y), x.count(), native(stream_)), "the launch of gelu");
  });
}

void CudaSequenceKernels::gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const {
  check_gelu_gradient(here, x, dy, dx);
  if (x.count() == 0) return;
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(launch_gelu_gradient(data<const T>(x), data<const T>(dy), data<T>(dx), x.count(), native(stream_)),
               "the launch of gelu_gradient");
  });
}

void CudaSequenceKernels::causal_attention(const CausalAttention& operands) const {
  const AttentionSizes sizes = check_attention(here, kept_scores(), operands);
  if (operands.y.count() == 0) return;
  with_stored_type(operands.qkv.dtype(), [&]<class T>() {
    const HeadProducts heads{products_, sizes, operands.qkv.dtype()};
    const Aligned qkv = Aligned::read(operands.qkv, stream_);
    const Aligned y = Aligned::written(operands.y, stream_);
    const Scores<T> scores{sizes, scratch_};
    for (std::int64_t window = 0; window < sizes.windows; ++window) {
      const Window<T> at{sizes, window};
      compute_scores(heads, sizes, at, qkv.data(), scores);
      check_cuda(launch_causal_softmax(scores.data(), scores.probabilities(),
                                       at.rows_of_scores(data<detail::computed_t<T>>(operands.kept)), sizes.heads,
                                       sizes.context, native(stream_)),
                 "the launch of causal_attention");
      heads.from_scores(1, heads.scores(scores.probabilities()), no, heads.in_qkv(at.values(qkv.data())),
                        heads.in_rows(at.columns(y.data())));
    }
    y.settle(stream_);
  });
}

void CudaSequenceKernels::causal_attention_gradient(const CausalAttentionGradient& operands) const {
  const AttentionSizes sizes = check_attention(here, kept_scores(), operands);
  if (operands.dy.count() == 0) return;
  with_stored_type(operands.qkv.dtype(), [&]<class T>() {
    const HeadProducts heads{products_, sizes, operands.qkv.dtype()};
    const Aligned qkv = Aligned::read(operands.qkv, stream_);
    const Aligned dy = Aligned::read(operands.dy, stream_);
    const Aligned d_qkv = Aligned::written(operands.d_qkv, stream_);
    const Aligned scratch = Aligned::written(operands.scratch, stream_);
    // First the scores, then the gradients of the probabilities.
    const Scores<T> scores{sizes, scratch_};
    // First the probabilities, then the gradients of the scores.
    T* const stored = static_cast<T*>(scratch.data());
    const double scale = score_scale(sizes);
    for (std::int64_t window = 0; window < sizes.windows; ++window) {
      const Window<T> at{sizes, window};
      compute_scores(heads, sizes, at, qkv.data(), scores);
      check_cuda(
          launch_causal_probabilities(scores.data(), at.rows_of_scores(data<detail::computed_t<T>>(operands.kept)),
                                      stored, sizes.heads, sizes.context, native(stream_)),
          "the launch of causal_attention_gradient");
      const Operand d = heads.in_rows(at.columns(dy.data()));
      heads.from_scores(1, heads.scores(stored), yes, d, heads.in_qkv(at.values(d_qkv.data())));
      heads.to_scores(1, d, heads.in_qkv(at.values(qkv.data())), heads.scores(scores.data()));
      check_cuda(
          launch_causal_softmax_gradient<T>(stored, scores.data(), stored, sizes.heads, sizes.context, native(stream_)),
          "the launch of causal_attention_gradient");
      heads.from_scores(scale, heads.scores(stored), no, heads.in_qkv(at.keys(qkv.data())),
                        heads.in_qkv(at.queries(d_qkv.data())));
      heads.from_scores(scale, heads.scores(stored), yes, heads.in_qkv(at.queries(qkv.data())),
                        heads.in_qkv(at.keys(d_qkv.data())));
    }
    d_qkv.settle(stream_);
  });
}

}  // namespace lockstep::ops::cuda
