// The kernels as plain loops: f32 and f64, one thread, one order for every sum. For bf16 they compute what the kernels
// of f32 make of the widened operands: products and convolutions by those of whoever derives from them.
#pragma once

#include <lockstep/models/ops/kernels.hpp>

#include "models/ops/answer.hpp"
#include "models/ops/functions.hpp"
#include "models/ops/reference/image_reference.hpp"
#include "models/ops/reference/sequence_reference.hpp"

namespace lockstep::ops {

class ReferenceKernels : public Kernels {
 public:
  ReferenceKernels() : ReferenceKernels{Functions::portable} {}
  explicit ReferenceKernels(Functions functions) : functions_{functions}, sequence_{functions} {}

  const ImageKernels& image() const override { return image_; }
  const SequenceKernels& sequence() const override { return sequence_; }
  std::string_view name() const override;
  std::string fingerprint() const override;
  bool is_portable() const override;
  void matmul(const Matrix& a, Transpose transpose_a, const Matrix& b, Transpose transpose_b,
              const Matrix& c) const override;
  std::int64_t row_stride(std::int64_t columns) const override { return columns; }
  void sum_of_products(std::span<const Factors> factors, const TensorView& c) const override;
  void linear(const TensorView& x, const TensorView& weight, const TensorView& bias, Activation activation,
              const TensorView& y) const override;
  void add_bias(const TensorView& rows, const TensorView& bias) const override;
  void sum_rows(const TensorView& rows, const TensorView& out) const override;
  void relu(const TensorView& x, const TensorView& y) const override;
  void relu_gradient(const TensorView& y, const TensorView& dy, const TensorView& dx) const override;
  Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels, std::int64_t samples,
                                                const Matrix& d_logits) const override;
  Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                std::int64_t samples) const override;
  void add(const TensorView& sum, const TensorView& x) const override;
  void convert(const TensorView& x, const TensorView& y) const override;

 private:
  Functions functions_;
  ReferenceImageKernels image_;
  ReferenceSequenceKernels sequence_;
};

}  // namespace lockstep::ops
