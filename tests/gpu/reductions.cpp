// The sum in the fixed order on a GPU: the bits of the host, for every number of parts.
#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "../unit/reduce_support.hpp"
#include "gpu_support.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/fixed_order_sum.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<int> part_counts{1, 2, 3, 4, 5, 6, 7, 8, 9, 17};

/// More elements than a grid takes in one stride are more than every combination needs to be tried with.
std::vector<std::int64_t> counts_for(int parts) {
  std::vector<std::int64_t> counts{0, 1, 255, 256, 257, 1025};
  if (parts == 3) counts.push_back(most_blocks() * 256 + 5);
  return counts;
}

template <class T>
Tensor on_gpu(const std::vector<T>& values, std::int64_t skip = 0) {
  const Tensor memory =
      Tensor::zeros(detail::dtype_of<T>, {static_cast<std::int64_t>(values.size()) + skip}, gpu().stream);
  copy(tensor_of(values).view(), memory.view().slice(skip, static_cast<std::int64_t>(values.size())), gpu().stream);
  return memory;
}

}  // namespace

TEMPLATE_TEST_CASE("a fixed-order sum on a GPU is the documented tree, to the bit", "", float, double, Half, BFloat16,
                   std::int32_t, std::int64_t, std::uint8_t) {
  for (const int parts : part_counts)
    for (const std::int64_t count : counts_for(parts))
      for (const std::int64_t skip : {0, 1}) {
        CAPTURE(parts, count, skip);
        const auto values = make_parts<TestType>(parts, count);
        const Tensor pieces = on_gpu(concatenated(values), skip);
        const Tensor sum = Tensor::zeros(detail::dtype_of<TestType>, {count + skip}, gpu().stream);
        fixed_order_sum(pieces.view().slice(skip, parts * count), parts, sum.view().slice(skip, count), gpu().stream);
        CHECK(test::same_bits(sum.view().slice(skip, count).to_vector<TestType>(), tree(values)));
        const Tensor on_host = Tensor::zeros(detail::dtype_of<TestType>, {count});
        fixed_order_sum(tensor_of(concatenated(values)).view(), parts, on_host.view());
        CHECK(test::same_bits(on_host.to_vector<TestType>(), tree(values)));
      }
}

TEMPLATE_TEST_CASE("parts that come one after the other on a GPU give the same bits", "", float, double, std::int64_t) {
  for (const std::int64_t count : {1, 257, 5000}) {
    FixedOrderAccumulator accumulator{detail::dtype_of<TestType>, count, gpu().stream};
    const Tensor sum = Tensor::zeros(detail::dtype_of<TestType>, {count}, gpu().stream);
    for (const int parts : part_counts) {
      CAPTURE(parts, count);
      const auto values = make_parts<TestType>(parts, count);
      for (const auto& part : values) {
        copy(tensor_of(part).view(), accumulator.next(), gpu().stream);
        accumulator.push();
      }
      accumulator.finish(sum.view());
      CHECK(test::same_bits(sum.to_vector<TestType>(), tree(values)));
    }
    CHECK_THROWS_AS(accumulator.finish(sum.view()), InvalidArgument);
  }
}

TEMPLATE_TEST_CASE("a mean on a GPU has the bits of the host's", "", float, double, Half, BFloat16) {
  for (const int divisor : {1, 2, 3, 7, 17})
    for (const std::int64_t count : {0, 1, 257, 5000}) {
      const auto values = make_parts<TestType>(1, count).front();
      const Tensor here = tensor_of(values);
      detail::divide(here.view(), divisor, Stream::host());
      const Tensor there = on_gpu(values);
      detail::divide(there.view(), divisor, gpu().stream);
      CHECK(test::same_bits(here.to_vector<TestType>(), there.to_vector<TestType>()));
    }
}

TEST_CASE("a sum on a GPU refuses the host's memory") {
  const Tensor here = Tensor::zeros(DType::f32, {4});
  const Tensor there = Tensor::zeros(DType::f32, {4}, gpu().stream);
  CHECK_THROWS_AS(fixed_order_sum(here.view(), 2, there.view().slice(0, 2), gpu().stream), InvalidArgument);
  CHECK_THROWS_AS(fixed_order_sum(there.view(), 2, here.view().slice(0, 2), gpu().stream), InvalidArgument);
  CHECK_THROWS_AS(fixed_order_sum(there.view(), 2, there.view().slice(0, 2)), InvalidArgument);
}
