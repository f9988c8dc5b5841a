// The order in which products are added up, which is that of fixed_order_sum.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops {

/// The factors whose products are added.
inline std::span<const Kernels::Factors> added(std::span<const Kernels::Factors> factors) {
  const auto end = std::ranges::find(factors, true, &Kernels::Factors::only_shown);
  return factors.first(static_cast<std::size_t>(end - factors.begin()));
}

/// Adds up the products of `factors`, of which there is at least one, into `sum`:
///   tree(0, n) = tree(0, m) + tree(m, n), m the largest power of two below n.
/// `arithmetic` computes on results of any type. put(c, factors) sets c to a product, add_product(c, factors) adds one
/// to c, and add(c, other) adds a sum to c. spare(level) is a result besides c, a different one for each level from 0
/// on. Both put and add_product show the product to `on_product`, complete, before it is added.
template <class Result>
void add_up_all(auto& arithmetic, std::span<const Kernels::Factors> factors, const Result& sum, std::size_t level = 0) {
  if (factors.size() == 1) return arithmetic.put(sum, factors.front());
  const std::size_t middle = std::bit_floor(factors.size() - 1);
  add_up_all(arithmetic, factors.first(middle), sum, level);
  if (middle + 1 == factors.size()) return arithmetic.add_product(sum, factors.back());
  const Result right = arithmetic.spare(level);
  add_up_all(arithmetic, factors.subspan(middle), right, level + 1);
  arithmetic.add(sum, right);
}

/// The same for those that are added. `show(factors)` shows each of the others.
template <class Result>
void add_up_products(auto& arithmetic, std::span<const Kernels::Factors> factors, const Result& sum) {
  const std::span<const Kernels::Factors> summands = added(factors);
  add_up_all(arithmetic, summands, sum);
  for (const Kernels::Factors& each : factors.subspan(summands.size()))
    if (each.on_product) arithmetic.show(each);
}

/// c = one product, which is shown.
inline void put_whole(const Kernels& kernels, const TensorView& c, const Kernels::Factors& factors) {
  kernels.matmul(factors.a, Kernels::Transpose::yes, factors.b, Kernels::Transpose::no, c);
  if (factors.on_product) factors.on_product(c);
}

/// Products that are complete before they are added.
class WholeProducts {
 public:
  /// `beside_c` returns memory like that of the result, another for each number from 0 to results_beside - 1.
  using BesideC = std::function<TensorView(std::size_t number)>;

  /// Everything must outlive it.
  WholeProducts(const Kernels& kernels, const BesideC& beside_c) : kernels_{kernels}, beside_c_{beside_c} {}

  void put(const TensorView& c, const Kernels::Factors& factors) const { put_whole(kernels_, c, factors); }
  void add_product(const TensorView& c, const Kernels::Factors& factors) const {
    const TensorView product = beside_c_(0);
    put(product, factors);
    add(c, product);
  }
  void show(const Kernels::Factors& factors) const { put(beside_c_(0), factors); }
  void add(const TensorView& c, const TensorView& other) const { kernels_.add(c, other); }
  TensorView spare(std::size_t level) const { return beside_c_(1 + level); }

 private:
  const Kernels& kernels_;
  const BesideC& beside_c_;
};

/// How many results besides the sum WholeProducts needs.
inline std::size_t results_beside(std::span<const Kernels::Factors> factors) {
  const std::size_t summands = added(factors).size();
  const auto of_sum = static_cast<std::size_t>(std::bit_width(summands - 1));
  return summands < factors.size() ? std::max<std::size_t>(of_sum, 1) : of_sum;
}

/// The sum whose bits `sum_of_products` should have.
inline void sum_of_whole_products(const Kernels& kernels, std::span<const Kernels::Factors> factors,
                                  const TensorView& c, const WholeProducts::BesideC& beside_c) {
  const WholeProducts products{kernels, beside_c};
  add_up_products(products, factors, c);
}

/// The same with memory of its own. `stream` is the kernels' stream.
inline void sum_of_whole_products(const Kernels& kernels, std::span<const Kernels::Factors> factors,
                                  const TensorView& c, Stream& stream) {
  std::vector<std::optional<Tensor>> beside(results_beside(factors));
  sum_of_whole_products(kernels, factors, c, [&](std::size_t number) {
    std::optional<Tensor>& own = beside[number];
    if (!own) own = Tensor::uninitialised(c.dtype(), c.shape(), stream);
    return own->view();
  });
}

}  // namespace lockstep::ops
