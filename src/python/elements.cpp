#include "python/elements.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "python/place.hpp"
#include "python/text.hpp"

namespace lockstep::python {
namespace {

using Op = c10d::ReduceOp::RedOpType;

struct Numbers {
  DType type;
  int per_element = 1;
};

constexpr std::pair<at::ScalarType, Numbers> numbers_of_types[] = {
    {at::kFloat, {DType::f32}},
    {at::kDouble, {DType::f64}},
    {at::kHalf, {DType::f16}},
    {at::kBFloat16, {DType::bf16}},
    {at::kInt, {DType::i32}},
    {at::kUInt32, {DType::i32}},
    {at::kLong, {DType::i64}},
    {at::kUInt64, {DType::i64}},
    {at::kByte, {DType::u8}},
    {at::kChar, {DType::u8}},
    {at::kComplexHalf, {DType::f16, 2}},
    {at::kComplexFloat, {DType::f32, 2}},
    {at::kComplexDouble, {DType::f64, 2}},
};

std::optional<Numbers> numbers_for(at::ScalarType type) {
  const auto* const found = std::ranges::find(numbers_of_types, type, [](const auto& each) { return each.first; });
  return found == std::end(numbers_of_types) ? std::nullopt : std::optional{found->second};
}

std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

/// Whether PyTorch combines such elements, here or as numbers of a group.
bool is_reducible(at::ScalarType type) {
  return numbers_for(type) || type == at::kShort || type == at::kUInt16 || type == at::kBool;
}

/// PyTorch adds up no uint16. As int16 its bits wrap around in the same way.
void add_up(at::Tensor& result, const at::Tensor& part) {
  if (result.scalar_type() == at::kUInt16)
    result.view(at::kShort).add_(part.view(at::kShort));
  else
    result.scalar_type() == at::kBool ? result.logical_or_(part) : result.add_(part);
}

/// `result` becomes the combination of itself and `part`.
void combine(Op op, at::Tensor& result, const at::Tensor& part) {
  const bool is_bool = result.scalar_type() == at::kBool;
  switch (op) {
    case Op::SUM: add_up(result, part); return;
    case Op::PRODUCT: is_bool ? result.logical_and_(part) : result.mul_(part); return;
    case Op::MIN: is_bool ? result.logical_and_(part) : at::minimum_out(result, result, part); return;
    case Op::MAX: is_bool ? result.logical_or_(part) : at::maximum_out(result, result, part); return;
    case Op::BAND: result.bitwise_and_(part); return;
    case Op::BOR: result.bitwise_or_(part); return;
    case Op::BXOR: result.bitwise_xor_(part); return;
    case Op::AVG:
    case Op::PREMUL_SUM:
    case Op::UNUSED: break;
  }
  throw InvalidArgument{fmt::format("{}: expected another operation", name_of(c10d::ReduceOp{op}))};
}

}  // namespace

at::Tensor stacked_like(const at::Tensor& tensor, std::int64_t count) {
  std::vector<std::int64_t> sizes{count};
  sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
  return at::empty(sizes, tensor.options().requires_grad(false));
}

TensorView bytes_of(const at::Tensor& contiguous) {
  return {data_of(contiguous), {static_cast<std::int64_t>(contiguous.nbytes())}, DType::u8};
}

std::optional<TensorView> numbers_of(const at::Tensor& contiguous) {
  const auto numbers = numbers_for(contiguous.scalar_type());
  if (!numbers) return {};
  return TensorView{data_of(contiguous), {contiguous.numel() * numbers->per_element}, numbers->type};
}

void require_reducible(const c10d::ReduceOp& op, at::ScalarType type, const Here& here) {
  const bool is_complex = at::isComplexType(type), is_float = at::isFloatingType(type);
  const auto refuse = [&](const char* expected) {
    throw InvalidArgument{
        fmt::format("{} of {}{}: expected {}", name_of(op), name_of(type), bracketed(here), expected)};
  };
  if (!is_reducible(type)) refuse("a type that PyTorch adds up");
  switch (op.op_) {
    case Op::SUM:
    case Op::PRODUCT: return;
    case Op::AVG:
      if (!is_float && !is_complex) refuse("a floating-point type");
      return;
    case Op::MIN:
    case Op::MAX:
      if (is_complex) refuse("an ordered type");
      return;
    case Op::BAND:
    case Op::BOR:
    case Op::BXOR:
      if (is_float || is_complex) refuse("an integer type, or bool");
      return;
    case Op::PREMUL_SUM:
    case Op::UNUSED: break;
  }
  refuse("SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR");
}

bool is_sum(const c10d::ReduceOp& op, const at::Tensor& tensor) {
  return (op.op_ == Op::AVG || op.op_ == Op::SUM) && numbers_for(tensor.scalar_type());
}

void finish_sum(const c10d::ReduceOp& op, const at::Tensor& sum, int ranks) {
  if (op.op_ == Op::AVG) at::Tensor{sum}.div_(ranks);
}

void reduce(const c10d::ReduceOp& op, const at::Tensor& parts, const at::Tensor& result) {
  at::Tensor combined = result;
  combined.copy_(parts.select(0, 0));
  for (std::int64_t rank = 1; rank < parts.size(0); ++rank) combine(op.op_, combined, parts.select(0, rank));
}

void require_on_host(const at::Tensor& tensor, const Here& here) {
  if (tensor.layout() == at::kStrided && tensor.device().is_cpu()) return;
  const std::string device = tensor.device().str();
  throw InvalidArgument{fmt::format("a {} tensor on {}{}: expected a dense one on the CPU",
                                    tensor.layout() == at::kStrided ? "dense" : "sparse", device, bracketed(here))};
}

}  // namespace lockstep::python
