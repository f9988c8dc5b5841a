// Kernels without the properties that let shards be computed at once: the reference's, each with one of them missing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "models/ops/reference/reference.hpp"

namespace lockstep::ops {

/// Multiplies each element by a number that is a little off one.
inline void stretch(const TensorView& view, double by) {
  if (view.dtype() == DType::f64)
    for (double& x : view.elements<double>()) x *= 1 + by;
  else
    for (float& x : view.elements<float>()) x *= static_cast<float>(1 + by);
}

/// Rows of products have other bits among more than `few` rows.
class RowCountingKernels : public ReferenceKernels {
 public:
  explicit RowCountingKernels(std::int64_t few) : few_{few} {}

  void matmul(const Matrix& a, Kernels::Transpose transpose_a, const Matrix& b, Kernels::Transpose transpose_b,
              const Matrix& c) const override {
    ReferenceKernels::matmul(a, transpose_a, b, transpose_b, c);
    // A gradient of a weight has as many rows whatever the shards; only its other extent is theirs.
    if (transpose_a == Kernels::Transpose::no && c.rows() > few_) stretch(c.view, 0x1p-20);
  }

 private:
  std::int64_t few_;
};

/// A sum of products shows none of them.
class SecretiveKernels : public ReferenceKernels {
 public:
  void sum_of_products(std::span<const Kernels::Factors> factors, const TensorView& c) const override {
    std::vector<Kernels::Factors> unwatched;
    for (const Kernels::Factors& each : factors) unwatched.push_back({each.a, each.b});
    ReferenceKernels::sum_of_products(unwatched, c);
  }
};

/// A sum of products adds the terms of all of them one by one, if it has to show none.
class TermwiseKernels : public ReferenceKernels {
 public:
  void sum_of_products(std::span<const Kernels::Factors> factors, const TensorView& c) const override {
    if (std::ranges::any_of(factors, [](const Factors& each) { return each.on_product != nullptr; }))
      return ReferenceKernels::sum_of_products(factors, c);
    const auto row = [](const TensorView& view, std::int64_t i) {
      const std::int64_t columns = view.shape()[1];
      return view.slice(i * columns, columns).reshaped({1, columns});
    };
    c.fill_zero();
    const Tensor term = Tensor::zeros(c.dtype(), c.shape());
    for (const Kernels::Factors& each : factors)
      for (std::int64_t i = 0; i < each.a.shape()[0]; ++i) {
        ReferenceKernels::matmul(row(each.a, i), Kernels::Transpose::yes, row(each.b, i), Kernels::Transpose::no,
                                 term.view());
        add(c, term.view());
      }
  }
};

/// Every product has bits of its own.
class ForgetfulKernels : public ReferenceKernels {
 public:
  void matmul(const Matrix& a, Kernels::Transpose transpose_a, const Matrix& b, Kernels::Transpose transpose_b,
              const Matrix& c) const override {
    ReferenceKernels::matmul(a, transpose_a, b, transpose_b, c);
    stretch(c.view, 0x1p-20 * ++calls_);
  }

 private:
  mutable int calls_ = 0;
};

/// Products depend on where their first operand lies.
class PlaceMindedKernels : public ReferenceKernels {
 public:
  void matmul(const Matrix& a, Kernels::Transpose transpose_a, const Matrix& b, Kernels::Transpose transpose_b,
              const Matrix& c) const override {
    ReferenceKernels::matmul(a, transpose_a, b, transpose_b, c);
    if (reinterpret_cast<std::uintptr_t>(a.view.data()) % 64 != 0) stretch(c.view, 0x1p-20);
  }
};

}  // namespace lockstep::ops
