// The kernels that give every element the bits that the host gives it.
#include "gpu_support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// One row and many, few columns and more than a block has, none of either; more rows than a grid takes in one stride.
const std::vector<Shape> row_shapes{{0, 3},
                                    {1, 1},
                                    {1, 10},
                                    {2, 31},
                                    {7, 32},
                                    {8, 33},
                                    {9, 1},
                                    {33, 257},
                                    {5, 0},
                                    {32, 8},
                                    {256, 512},
                                    {1000, 10},
                                    {most_blocks() * 9 + 5, 3},
                                    {15, 16},
                                    {16, 4096},
                                    {17, 2}};

/// With numbers of both signs, zeros of both signs, and what is not finite.
Tensor awkward(DType dtype, std::int64_t count, std::uint64_t seed) {
  const Tensor random = noise(dtype, {count}, seed);
  const auto values = ops::in_double(random);
  const double special[] = {0., -0., ops::infinity, -ops::infinity, not_a_number};
  return ops::generate(dtype, {count}, [&](std::int64_t i) {
    return i % 7 == 3 ? special[static_cast<std::size_t>(i / 7) % 5] : values[static_cast<std::size_t>(i)];
  });
}

}  // namespace

TEST_CASE("relu on a GPU has the bits of the host's, NaN and zeros too, in place too") {
  for (const DType dtype : float_types)
    for (const std::int64_t count : element_counts()) {
      CAPTURE(name_of(dtype), count);
      check_like_reference({awkward(dtype, count, 1), noise(dtype, {count}, 2)}, exactly,
                           [](const Kernels& kernels, const Views& v) { kernels.relu(v[0], v[1]); });
      check_like_reference({awkward(dtype, count, 1)}, exactly,
                           [](const Kernels& kernels, const Views& v) { kernels.relu(v[0], v[0]); });
    }
}

TEST_CASE("relu's gradient on a GPU has the bits of the host's, in place of either operand too") {
  for (const DType dtype : float_types)
    for (const std::int64_t count : element_counts()) {
      CAPTURE(name_of(dtype), count);
      const Operands operands{awkward(dtype, count, 1), awkward(dtype, count, 2), noise(dtype, {count}, 3)};
      for (const std::size_t to : {2, 1, 0})
        check_like_reference(operands, exactly, [to](const Kernels& kernels, const Views& v) {
          kernels.relu_gradient(v[0], v[1], v[to]);
        });
    }
}

TEST_CASE("a bias added on a GPU has the bits of the host's") {
  for (const DType dtype : float_types)
    for (const Shape& shape : row_shapes) {
      CAPTURE(name_of(dtype), describe(shape));
      check_like_reference({noise(dtype, shape, 1), noise(dtype, {shape[1]}, 2)}, exactly,
                           [](const Kernels& kernels, const Views& v) { kernels.add_bias(v[0], v[1]); });
    }
}

TEST_CASE("the rows summed on a GPU have the bits of the host's: first row first") {
  for (const DType dtype : float_types) {
    for (const Shape& shape : row_shapes) {
      CAPTURE(name_of(dtype), describe(shape));
      check_like_reference({noise(dtype, shape, 1), noise(dtype, {shape[1]}, 2)}, exactly,
                           [](const Kernels& kernels, const Views& v) { kernels.sum_rows(v[0], v[1]); });
    }
    // More columns than a grid takes in one stride.
    check_like_reference({noise(dtype, {3, most_blocks() * 32 + 5}, 1), noise(dtype, {most_blocks() * 32 + 5}, 2)},
                         exactly, [](const Kernels& kernels, const Views& v) { kernels.sum_rows(v[0], v[1]); });
  }
}

TEST_CASE("a sum on a GPU has the bits of the host's") {
  for (const DType dtype : float_types)
    for (const std::int64_t count : element_counts()) {
      CAPTURE(name_of(dtype), count);
      check_like_reference({noise(dtype, {count}, 1), noise(dtype, {count}, 2)}, exactly,
                           [](const Kernels& kernels, const Views& v) { kernels.add(v[0], v[1]); });
    }
}
