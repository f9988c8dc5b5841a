#include "models/ops/kernel_properties.hpp"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/tensor/computed.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/product_tree.hpp"
#include "models/ops/with_type.hpp"

namespace lockstep::ops {
namespace {

/// The least number of result elements to compare. A single one may have the same bits in another order by chance.
constexpr std::int64_t elements_compared = 256;

std::int64_t rounds_for(std::int64_t elements) {
  return (elements_compared + elements - 1) / elements;
}

bool same_bits(const TensorView& a, const TensorView& b) {
  const Tensor x = Tensor::on_host(a);
  const Tensor y = Tensor::on_host(b);
  return std::memcmp(x.view().data(), y.view().data(), x.view().bytes()) == 0;
}

/// A copy with another alignment: it begins one element after the start of its memory.
Tensor moved(const TensorView& view, Stream& stream) {
  const Tensor memory = Tensor::uninitialised(view.dtype(), {view.count() + 1}, stream);
  const TensorView behind = memory.view().slice(1, view.count()).reshaped(view.shape());
  copy(view, behind, stream);
  return memory.sharing(behind);
}

TensorView block_of(const TensorView& all, RowBlocks blocks, std::int64_t block) {
  const std::int64_t columns = all.shape()[1];
  return all.slice(block * blocks.rows * columns, blocks.rows * columns).reshaped({blocks.rows, columns});
}

/// The factors of `operands`, which are a and b in turn.
std::vector<Kernels::Factors> factors_of(std::span<const TensorView> operands) {
  std::vector<Kernels::Factors> factors;
  for (std::size_t i = 0; i < operands.size(); i += 2) factors.push_back({operands[i], operands[i + 1]});
  return factors;
}

/// In [-1, 1), with as many significant bits as the type has, so that sums of products are rounded.
double number_of(DType dtype, std::uint32_t high, std::uint32_t low) {
  const double fine = dtype == DType::f64 ? low >> 3 : 0;
  return (high >> 8) * 0x1p-23 + fine * 0x1p-52 - 1;
}

template <class T>
Tensor numbers(const RandomStream& stream, Shape shape) {
  const Tensor made = Tensor::uninitialised(detail::dtype_of<T>, std::move(shape));
  std::vector<std::uint32_t> words(2 * static_cast<std::size_t>(made.count()));
  stream.words(0, words);
  const std::span<T> elements = made.view().elements<T>();
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] =
        static_cast<T>(static_cast<detail::computed_t<T>>(number_of(made.dtype(), words[2 * i], words[2 * i + 1])));
  return made;
}

}  // namespace

DenseTrial::DenseTrial(const Kernels& kernels, const DenseForm& form, RowBlocks blocks, Stream& stream)
    : kernels_{kernels}, form_{form}, blocks_{blocks}, stream_{stream} {}

bool DenseTrial::forward_rows_keep_their_bits() {
  return rows_keep_their_bits(
      {.name = "linear",
       .columns = form_.inputs,
       .shared = {{{form_.inputs, form_.outputs}, form_.dtype}, {{form_.outputs}, sum_type(form_.dtype)}},
       .result_columns = form_.outputs,
       .call = [this](Views v, const TensorView& y) { kernels_.linear(v[0], v[1], v[2], form_.activation, y); }});
}

bool DenseTrial::input_gradient_rows_keep_their_bits() {
  return rows_keep_their_bits({.name = "matmul",
                               .columns = form_.outputs,
                               .shared = {{{form_.inputs, form_.outputs}, form_.dtype}},
                               .result_columns = form_.inputs,
                               .call = [this](Views v, const TensorView& dx) {
                                 kernels_.matmul(v[0], Kernels::Transpose::no, v[1], Kernels::Transpose::yes, dx);
                               }});
}

bool DenseTrial::weight_gradients_add_up() {
  const Call at_once = [this](Views v, const TensorView& c) { kernels_.sum_of_products(factors_of(v), c); };
  // One product is shown, which takes another way to the sum then, and after all it is shown once more, alone.
  std::int64_t shown = 0;
  const Tensor alone = Tensor::zeros(sum_type(form_.dtype), {form_.inputs * form_.outputs}, stream_);
  const Call with_onlookers = [&](Views v, const TensorView& c) {
    std::vector<Kernels::Factors> factors = factors_of(v);
    factors.back().on_product = [&](const TensorView& rows) { shown += rows.count(); };
    std::int64_t first = 0;
    const auto keep = [&](const TensorView& rows) {
      copy(rows.reshaped({rows.count()}), alone.view().slice(std::exchange(first, first + rows.count()), rows.count()),
           stream_);
    };
    factors.push_back({v[v.size() - 2], v.back(), keep, true});
    kernels_.sum_of_products(factors, c);
  };
  const Call each_whole = [this](Views v, const TensorView& c) {
    sum_of_whole_products(kernels_, factors_of(v), c, stream_);
  };
  for (std::int64_t round = rounds_for(form_.inputs * form_.outputs); round-- > 0;) {
    const Tensor x = random({{blocks_.all_rows(), form_.inputs}, form_.dtype});
    const Tensor dy = random({{blocks_.all_rows(), form_.outputs}, form_.dtype});
    const Tensor before = random({{form_.inputs, form_.outputs}, sum_type(form_.dtype)});
    std::vector<TensorView> operands;
    for (std::int64_t block = 0; block < blocks_.blocks; ++block) {
      operands.push_back(block_of(x.view(), blocks_, block));
      operands.push_back(block_of(dy.view(), blocks_, block));
    }
    const Tensor sum = result_of("sum_of_products", at_once, operands, before.view());
    const Tensor expected = result_of("matmul", each_whole, operands, before.view());
    if (!same_bits(sum.view(), expected.view())) return false;
    shown = 0;
    const Tensor watched = result_of("sum_of_products", with_onlookers, operands, before.view());
    // result_of calls it twice.
    if (!same_bits(watched.view(), expected.view()) || shown != 2 * expected.count()) return false;
    const Tensor last = result_of("matmul", each_whole, Views{operands}.last(2), before.view());
    if (!same_bits(alone.view(), last.view())) return false;
  }
  return true;
}

bool DenseTrial::rows_keep_their_bits(const RowCall& rows) {
  for (std::int64_t round = rounds_for(blocks_.all_rows() * rows.result_columns); round-- > 0;) {
    const Tensor x = random({{blocks_.all_rows(), rows.columns}, form_.dtype});
    std::vector<Tensor> shared;
    for (const Form& form : rows.shared) shared.push_back(random(form));
    std::vector<TensorView> operands{x.view()};
    for (const Tensor& each : shared) operands.push_back(each.view());
    const Tensor before = random({{blocks_.all_rows(), rows.result_columns}, form_.dtype});

    const Tensor whole = result_of(rows.name, rows.call, operands, before.view());
    if (blocks_.blocks == 1) continue;
    for (std::int64_t block = 0; block < blocks_.blocks; ++block) {
      operands.front() = block_of(x.view(), blocks_, block);
      const Tensor alone = result_of(rows.name, rows.call, operands, block_of(before.view(), blocks_, block));
      if (!same_bits(alone.view(), block_of(whole.view(), blocks_, block))) return false;
    }
  }
  return true;
}

Tensor DenseTrial::result_of(std::string_view name, const Call& call, Views operands, const TensorView& before) {
  const Tensor result = Tensor::copy_of(before, stream_);
  call(operands, result.view());

  std::vector<Tensor> copies;
  std::vector<TensorView> elsewhere;
  for (const TensorView& operand : operands) elsewhere.push_back(copies.emplace_back(moved(operand, stream_)).view());
  const Tensor again = moved(before, stream_);
  call(elsewhere, again.view());
  if (!same_bits(result.view(), again.view()))
    throw DeviceError{
        fmt::format("{} ({}): {} of {} and {} has other bits when it is computed again; expected the same bits from "
                    "the same numbers, wherever they lie",
                    kernels_.name(), kernels_.fingerprint(), name, describe(operands[0]), describe(operands[1]))};
  return result;
}

Tensor DenseTrial::random(const Form& form) {
  const RandomStream numbers_of_tensor{0, RandomStream::Purpose::kernel_trial, drawn_++};
  const Tensor made =
      with_stored_type(form.dtype, [&]<class T>() { return numbers<T>(numbers_of_tensor, form.shape); });
  return Tensor::copy_of(made.view(), stream_);
}

}  // namespace lockstep::ops
