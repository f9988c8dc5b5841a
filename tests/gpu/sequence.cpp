// Kernels for sequences on a GPU against the reference.
#include <lockstep/core/base/error.hpp>

#include "attention_operands.hpp"
#include "gpu_support.hpp"
#include "models/ops/sequence_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;
using ops::i32;

namespace {

struct Extents {
  std::int64_t rows;
  std::int64_t width;
};

/// Around a warp, the warps of a block and its threads; rows beyond the table's; none; the width of a small GPT.
const std::vector<Extents> extents{{1, 1},  {2, 31},   {7, 32}, {8, 33},  {9, 64},
                                   {33, 5}, {257, 40}, {0, 3},  {3, 257}, {2, 768}};

/// Indices into `entries` rows, with repetitions and rows that none has.
Tensor indices_into(std::int64_t entries, std::int64_t count) {
  const RandomStream random{3, RandomStream::Purpose::initial_value, 2};
  std::vector<std::int32_t> indices;
  for (std::int64_t i = 0; i < count; ++i)
    indices.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(entries), static_cast<std::uint64_t>(i))));
  return Tensor::from(indices, {count});
}

const std::vector<AttentionSizes> attentions{{1, 1, 1, 1}, {2, 3, 1, 4}, {3, 8, 2, 3}, {1, 33, 3, 5}, {2, 40, 4, 8}};

/// Scores are products of as many numbers as a head is wide, times the inverse of its root; their softmax and its means
/// have as many terms as the context. Errors add up like the steps of a drunkard, see rounding_of_products.
double attention_tolerance(DType dtype, const AttentionSizes& s) {
  return (8 + std::sqrt(static_cast<double>(s.head_width)) + std::sqrt(static_cast<double>(s.context))) *
         epsilon(dtype);
}

/// Keys and values also get sums over the rows that follow, whose probabilities add up to 1 + 1/2 + 1/3 + … for the
/// first.
double attention_gradient_tolerance(DType dtype, const AttentionSizes& s) {
  return (1 + std::log(static_cast<double>(s.context))) * attention_tolerance(dtype, s);
}

/// Of the scores of each row, from the definition, as [windows, heads, context].
std::vector<double> log_sum_exps(const std::vector<double>& qkv, const AttentionSizes& s) {
  const auto at = [&](std::int64_t position, std::int64_t part, std::int64_t column) {
    return qkv[static_cast<std::size_t>((position * 3 + part) * s.width() + column)];
  };
  std::vector<double> all;
  for (std::int64_t window = 0; window < s.windows; ++window)
    for (std::int64_t head = 0; head < s.heads; ++head)
      for (std::int64_t i = 0; i < s.context; ++i) {
        double sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          double score = 0;
          for (std::int64_t column = head * s.head_width; column < (head + 1) * s.head_width; ++column)
            score += at(window * s.context + i, 0, column) * at(window * s.context + j, 1, column);
          sum += std::exp(score / std::sqrt(static_cast<double>(s.head_width)));
        }
        all.push_back(std::log(sum));
      }
  return all;
}

}  // namespace

TEST_CASE("lookups on a GPU and their gradient have the host's bits") {
  for (const DType dtype : float_types)
    for (const auto& [rows, width] : extents)
      // The last is more than a grid takes in one stride.
      for (const std::int64_t entries : {std::int64_t{1}, std::int64_t{5}, most_blocks() + 7}) {
        CAPTURE(rows, width, entries);
        const Tensor table = noise(dtype, {entries, width}, 1), indices = indices_into(entries, rows);
        check_like_reference({table, indices, filled(dtype, {rows, width}, 9)}, 0,
                             [](const Kernels& kernels, const Views& views) {
                               kernels.sequence().gather_rows(views[0], views[1], views[2]).wait();
                             });
        check_like_reference({noise(dtype, {rows, width}, 2), indices, table}, 0,
                             [](const Kernels& kernels, const Views& views) {
                               kernels.sequence().scatter_add_rows(views[0], views[1], views[2]);
                             });
      }
}

TEST_CASE("an index that is no row of the table is refused on a GPU, and nothing is written") {
  const Tensor table = Tensor::copy_of(noise(DType::f32, {4, 40}, 1).view(), gpu().stream);
  const Tensor rows = Tensor::copy_of(filled(DType::f32, {3, 40}, 9).view(), gpu().stream);
  for (const auto& bad : {i32({0, 4, -1}), i32({0, -1, 4})}) {
    const Tensor indices = Tensor::copy_of(bad.view(), gpu().stream);
    const std::string index = std::to_string(bad.view().elements<std::int32_t>()[1]);
    CHECK_THROWS_WITH(gpu().kernels.sequence().gather_rows(table.view(), indices.view(), rows.view()).wait(),
                      Catch::StartsWith("gather_rows: index " + index + " at position 1 "));
  }
  check_close(noise(DType::f32, {4, 40}, 1), Tensor::on_host(table.view()), 0);
  check_close(filled(DType::f32, {3, 40}, 9), Tensor::on_host(rows.view()), 0);
}

TEST_CASE("layer norm on a GPU is the reference's, and the sums of its gradient have the host's bits") {
  for (const DType dtype : float_types)
    for (const auto& [rows, width] : extents) {
      CAPTURE(rows, width);
      // The mean and the variance are those of numbers below 1, and no result changes by more than they do twice over.
      const double some = 16 * epsilon(dtype) + 2 * rounding_of_sums(dtype, additions_of_row(width), 1);
      const Tensor x = noise(dtype, {rows, width}, 1), gain = noise(dtype, {width}, 2), dy = noise(dtype, x.shape(), 3);
      const Operands forward{x, gain, noise(dtype, {width}, 4), filled(dtype, x.shape(), 9),
                             filled(dtype, {rows, 2}, 9)};
      const auto norm = [](const Kernels& kernels, const Views& views) {
        kernels.sequence().layer_norm({.x = views[0],
                                       .gain = views[1],
                                       .bias = views[2],
                                       .epsilon = 0.25,  // keeps the inverse of the deviation, and its error, small
                                       .y = views[3],
                                       .moments = views[4]});
      };
      check_like_reference(forward, some, norm);
      const Tensor moments = after_reference(forward, norm)[4];
      const Tensor sum = filled(dtype, {width}, 9);
      const auto gradient = [](const Kernels& kernels, const Views& views) {
        kernels.sequence().layer_norm_gradient({.x = views[0],
                                                .gain = views[1],
                                                .moments = views[2],
                                                .dy = views[3],
                                                .dx = views[4],
                                                .d_gain = views[5],
                                                .d_bias = views[6]});
      };
      const Operands operands{x, gain, moments, dy, filled(dtype, x.shape(), 9), sum, sum};
      check_like_reference(operands, some, gradient);
      const Operands here = after_reference(operands, gradient), there = after_cuda(operands, gradient);
      check_close(here[5], there[5], 0);
      check_close(here[6], there[6], 0);
      // In place.
      check_like_reference({x, gain, moments, dy, sum, sum}, some, [](const Kernels& kernels, const Views& views) {
        kernels.sequence().layer_norm_gradient({.x = views[0],
                                                .gain = views[1],
                                                .moments = views[2],
                                                .dy = views[3],
                                                .dx = views[3],
                                                .d_gain = views[4],
                                                .d_bias = views[5]});
      });
    }
}

TEST_CASE("GELU on a GPU is the reference's, also in place") {
  for (const DType dtype : float_types)
    for (const std::int64_t count : {0, 1, 255, 256, 257, 1000}) {
      const Tensor x = noise(dtype, {count}, 1), other = noise(dtype, {count}, 2);
      const auto gelu = [](const Kernels& kernels, const Views& views) {
        kernels.sequence().gelu(views[0], views.back());
      };
      check_like_reference({x, other}, 4 * epsilon(dtype), gelu);
      check_like_reference({x}, 4 * epsilon(dtype), gelu);
      const auto gradient = [](const Kernels& kernels, const Views& views) {
        kernels.sequence().gelu_gradient(views[0], views[1], views.back());
      };
      check_like_reference({x, other, filled(dtype, {count}, 9)}, 8 * epsilon(dtype), gradient);
      check_like_reference({x, other}, 8 * epsilon(dtype), gradient);
    }
}

TEST_CASE("NaN and infinity go through the sequence kernels of a GPU as through the host's") {
  for (const double wrong : {ops::not_a_number, ops::infinity}) {
    const AttentionSizes sizes{2, 8, 2, 3};
    Operands forward = attention_operands(DType::f32, sizes), backward = gradient_operands(DType::f32, sizes);
    for (const Operands& operands : {forward, backward})
      operands[0].view().elements<float>()[5] = static_cast<float>(wrong);
    check_like_reference(forward, attention_tolerance(DType::f32, sizes), attend(sizes));
    check_like_reference(backward, attention_gradient_tolerance(DType::f32, sizes), attend_gradient(sizes));
    const Tensor x = noise(DType::f32, {40}, 1);
    x.view().elements<float>()[3] = static_cast<float>(wrong);
    check_like_reference({x}, 4 * epsilon(DType::f32), [](const Kernels& kernels, const Views& views) {
      kernels.sequence().gelu(views[0], views[0]);
    });
  }
}

TEST_CASE("causal attention on a GPU is the reference's") {
  for (const DType dtype : float_types)
    for (const AttentionSizes& sizes : attentions) {
      CAPTURE(sizes.windows, sizes.context, sizes.heads, sizes.head_width);
      check_like_reference(attention_operands(dtype, sizes), attention_tolerance(dtype, sizes), attend(sizes));
      check_like_reference(gradient_operands(dtype, sizes), attention_gradient_tolerance(dtype, sizes),
                           attend_gradient(sizes));
    }
}

TEST_CASE("causal attention on a GPU is the reference's in the context of a small GPT", "[large]") {
  const AttentionSizes sizes{1, 1024, 1, 64};
  for (const DType dtype : float_types) {
    check_like_reference(attention_operands(dtype, sizes), attention_tolerance(dtype, sizes), attend(sizes));
    check_like_reference(gradient_operands(dtype, sizes), attention_gradient_tolerance(dtype, sizes),
                         attend_gradient(sizes));
  }
}

TEST_CASE("lookups on a GPU in the table of a small GPT, and their gradient, have the host's bits", "[large]") {
  const Tensor table = noise(DType::f32, {50257, 768}, 1), indices = indices_into(50257, 33);
  check_like_reference({table, indices, filled(DType::f32, {33, 768}, 9)}, exactly,
                       [](const Kernels& kernels, const Views& views) {
                         kernels.sequence().gather_rows(views[0], views[1], views[2]).wait();
                       });
  check_like_reference({noise(DType::f32, {33, 768}, 2), indices, table}, exactly,
                       [](const Kernels& kernels, const Views& views) {
                         kernels.sequence().scatter_add_rows(views[0], views[1], views[2]);
                       });
}

TEST_CASE("attention on a GPU keeps the log-sum-exp of each row of scores, and nothing else") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const AttentionSizes& s : attentions) {
      CAPTURE(name_of(dtype), s.windows, s.context, s.heads, s.head_width);
      Operands operands = attention_operands(dtype, s);
      operands.push_back(filled(ops::sum_type(dtype), {s.windows, s.heads, s.context}, 9));
      const Tensor kept = after_cuda(operands, [](const Kernels& kernels, const Views& views) {
        kernels.sequence().causal_attention({.qkv = views[0], .kept = views[2], .y = views[1]});
      })[2];
      const std::vector<double> found = ops::in_double(kept), expected = log_sum_exps(ops::in_double(operands[0]), s);
      REQUIRE(found.size() == expected.size());
      for (std::size_t row = 0; row < found.size(); ++row)
        REQUIRE(std::abs(found[row] - expected[row]) <= 2 * attention_tolerance(kept.dtype(), s));
    }
}

TEST_CASE("a window has the same bits on a GPU whatever the number of windows") {
  const AttentionSizes one{1, 33, 3, 5}, many{4, 33, 3, 5};
  const auto first_of = [](const Tensor& all, std::int64_t count) {
    return all.view().reshaped({all.count()}).slice(0, count);
  };
  // The same qkv in the first window: noise is a function of the index.
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const Operands alone = after_cuda(attention_operands(dtype, one), attend(one));
    const Operands among = after_cuda(attention_operands(dtype, many), attend(many));
    CHECK(ops::same_bits(first_of(alone[1], alone[1].count()), first_of(among[1], alone[1].count())));
    const Operands d_alone = after_cuda(gradient_operands(dtype, one), attend_gradient(one));
    const Operands d_among = after_cuda(gradient_operands(dtype, many), attend_gradient(many));
    CHECK(ops::same_bits(first_of(d_alone[2], d_alone[2].count()), first_of(d_among[2], d_alone[2].count())));
  }
}

TEST_CASE("sequence kernels on a GPU repeat their bits") {
  const AttentionSizes sizes{1, 40, 4, 8};
  check_repeats(attention_operands(DType::f32, sizes), attend(sizes));
  check_repeats(gradient_operands(DType::f32, sizes), attend_gradient(sizes));
}
