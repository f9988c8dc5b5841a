// The order in which products are added up, which is that of fixed_order_sum.
#pragma once

#include <bit>
#include <cstddef>
#include <span>
#include <vector>

#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

/// Adds up the products of `factors`, of which there is at least one, into `sum`:
///   tree(0, n) = tree(0, m) + tree(m, n), m the largest power of two below n.
/// `arithmetic` computes on results of any type. put(c, factors) sets c to a product, add_product(c, factors) adds one
/// to c, and add(c, other) adds a sum to c. spare(level) is a result besides c, a different one for each level from 0
/// on.
template <class Result>
void add_up_products(auto& arithmetic, std::span<const Kernels::Factors> factors, const Result& sum,
                     std::size_t level = 0) {
  if (factors.size() == 1) return arithmetic.put(sum, factors.front());
  const std::size_t middle = std::bit_floor(factors.size() - 1);
  add_up_products(arithmetic, factors.first(middle), sum, level);
  if (middle + 1 == factors.size()) return arithmetic.add_product(sum, factors.back());
  const Result right = arithmetic.spare(level);
  add_up_products(arithmetic, factors.subspan(middle), right, level + 1);
  arithmetic.add(sum, right);
}

/// Products that are complete before they are added.
class WholeProducts {
 public:
  /// For results like `c`. Everything must outlive it; `stream` is the kernels' stream.
  WholeProducts(const Kernels& kernels, const TensorView& c, Stream& stream)
      : kernels_{kernels}, c_{c}, stream_{stream} {}

  void put(const TensorView& c, const Kernels::Factors& factors) const {
    kernels_.matmul(factors.a, Kernels::Transpose::yes, factors.b, Kernels::Transpose::no, c);
  }
  void add_product(const TensorView& c, const Kernels::Factors& factors) const {
    const Tensor product = beside_c();
    put(product.view(), factors);
    add(c, product.view());
  }
  void add(const TensorView& c, const TensorView& other) const { kernels_.add(c, other); }
  TensorView spare(std::size_t level) {
    if (level == spare_.size()) spare_.push_back(beside_c());
    return spare_[level].view();
  }

 private:
  Tensor beside_c() const { return Tensor::uninitialised(c_.dtype(), c_.shape(), stream_); }

  const Kernels& kernels_;
  const TensorView& c_;
  Stream& stream_;
  std::vector<Tensor> spare_;
};

/// The sum whose bits `sum_of_products` should have.
inline void sum_of_whole_products(const Kernels& kernels, std::span<const Kernels::Factors> factors,
                                  const TensorView& c, Stream& stream) {
  WholeProducts products{kernels, c, stream};
  add_up_products(products, factors, c);
}

}  // namespace lockstep::ops
