// Softmax cross-entropy on a GPU against the reference.
#include <algorithm>

#include <lockstep/core/base/error.hpp>

#include "gpu_support.hpp"
#include "models/ops/answer.hpp"
#include "models/ops/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;
using BatchLoss = ops::Kernels::BatchLoss;

namespace {

/// One row and many, fewer and more classes than a warp has lanes, more rows than a block, and more than a grid takes
/// in one stride.
const std::vector<Shape> shapes{{1, 1},   {1, 10},   {2, 2},    {7, 31},   {8, 32},    {9, 33},
                                {33, 64}, {255, 10}, {256, 10}, {257, 10}, {100, 256}, {most_blocks() * 9 + 5, 10}};

Tensor logits_of(DType dtype, const Shape& shape, std::uint64_t seed) {
  const auto values = ops::in_double(noise(dtype, shape, seed));
  return generate(dtype, shape, [&](std::int64_t i) { return 10 * values[static_cast<std::size_t>(i)]; });
}

Tensor labels_of(const Shape& shape, std::uint64_t seed) {
  const RandomStream random{seed, RandomStream::Purpose::initial_value, 2};
  std::vector<std::int32_t> labels;
  for (std::int64_t row = 0; row < shape[0]; ++row)
    labels.push_back(
        static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(shape[1]), static_cast<std::uint64_t>(row))));
  return Tensor::from(labels, {shape[0]});
}

/// A few whole numbers: many rows have equal logits, and some rows' largest is their label's.
Tensor tied_logits(DType dtype, const Shape& shape, std::uint64_t seed) {
  const RandomStream random{seed, RandomStream::Purpose::initial_value, 3};
  return generate(dtype, shape,
                  [&](std::int64_t i) { return static_cast<double>(random.below(3, static_cast<std::uint64_t>(i))); });
}

/// The exponentials are off by a rounding or two on either side, and their sum by one for each class: this share of it.
/// Losses are logs of such sums, one a row.
double row_tolerance(DType dtype, std::int64_t classes) {
  return (static_cast<double>(classes) + 8) * epsilon(dtype);
}

/// Of sums of losses, in double and in the same order, of which each is off by as much as its row.
double loss_tolerance(DType dtype, std::int64_t classes, std::int64_t samples, double loss_sum) {
  return static_cast<double>(samples) * row_tolerance(dtype, classes) +
         rounding_of_sums(DType::f64, 2 * static_cast<double>(samples), loss_sum);
}

/// A probability is off by a share of itself: with many classes, most are smaller than any tolerance for all of them.
/// One is subtracted from the label's.
void check_gradient(const Tensor& expected, const Tensor& got, const Tensor& labels, std::int64_t samples) {
  const std::int64_t classes = expected.shape()[1];
  const double share = row_tolerance(expected.dtype(), classes);
  const auto here = ops::in_double(expected), there = ops::in_double(got);
  const auto label = labels.view().elements<std::int32_t>();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / classes, column = static_cast<std::int64_t>(i) % classes;
    const bool is_label = row < samples && column == label[static_cast<std::size_t>(row)];
    const double tolerance = is_label ? share * (1 + here[i]) + epsilon(expected.dtype()) : share * std::abs(here[i]);
    wrong += std::abs(here[i] - there[i]) <= tolerance ? 0 : 1;
  }
  CHECK(wrong == 0);
}

void check_like_reference_with_samples(const Tensor& logits, const Tensor& labels, std::int64_t samples) {
  BatchLoss expected;
  std::vector<BatchLoss> got;
  const Tensor d_logits = filled(logits.dtype(), logits.shape(), not_a_number);
  const auto call = [&](const Kernels& kernels, const Views& v) {
    const BatchLoss result = kernels.softmax_cross_entropy(v[0], v[1], samples, v[2]);
    if (kernels.name() == "reference") {
      expected = result;
    } else {
      got.push_back(result);
      // The same without a gradient, and the same gradient in the place of the logits.
      got.push_back(kernels.softmax_cross_entropy(v[0], v[1], samples));
    }
  };
  Operands apart;
  compare_with_reference({logits, labels, d_logits}, call, [&](std::size_t i, const Tensor& here, const Tensor& there) {
    if (i < 2) return check_close(here, there, exactly);
    check_gradient(here, there, labels, samples);
    apart.push_back(there);
  });
  const Operands in_place = after_cuda({logits, labels}, [&](const Kernels& kernels, const Views& v) {
    got.push_back(kernels.softmax_cross_entropy(v[0], v[1], samples, v[0]));
  });
  CHECK(ops::same_bits(in_place[0].view(), apart.front().view()));
  for (const BatchLoss& result : got) {
    CHECK(result.correct == expected.correct);
    CHECK(result.loss_sum == got.front().loss_sum);
    CHECK(std::abs(result.loss_sum - expected.loss_sum) <=
          loss_tolerance(logits.dtype(), logits.shape()[1], samples, expected.loss_sum));
  }
}

}  // namespace

TEST_CASE("softmax cross-entropy on a GPU is the reference's, with any number of rows, classes and samples") {
  for (const DType dtype : float_types)
    for (const Shape& shape : shapes)
      for (const std::int64_t samples : {std::int64_t{0}, std::int64_t{1}, shape[0] / 2, shape[0]}) {
        if (grids_are_limited() && shape[0] > 33 && samples < shape[0]) continue;  // takes long there
        CAPTURE(name_of(dtype), describe(shape), samples);
        check_like_reference_with_samples(logits_of(dtype, shape, 1), labels_of(shape, 2), samples);
      }
}

TEST_CASE("softmax cross-entropy on a GPU is the reference's with the classes of a language model") {
  for (const DType dtype : float_types)
    check_like_reference_with_samples(logits_of(dtype, {2, 50257}, 1), labels_of({2, 50257}, 2), 1);
}

TEST_CASE("of equal logits the lowest class wins on a GPU") {
  for (const DType dtype : float_types)
    for (const Shape& shape : shapes) {
      CAPTURE(name_of(dtype), describe(shape));
      check_like_reference_with_samples(tied_logits(dtype, shape, 1), labels_of(shape, 2), shape[0]);
    }
}

TEST_CASE("the losses of whole rows are added up in the order of the rows") {
  // A row of two equal logits costs log 2, one of -1000 and 1000 costs 2000: sums whose bits show their order.
  const std::int64_t rows = 520;  // two rounds of a block of 256 threads, and a few
  const Tensor logits = generate(DType::f64, {rows, 2}, [](std::int64_t i) {
    const std::int64_t row = i / 2;
    return row % 3 == 0 ? (i % 2 == 0 ? -1000. : 1000.) : 0.;
  });
  const Tensor labels = Tensor::from(std::vector<std::int32_t>(static_cast<std::size_t>(rows), 0), {rows});
  double expected = 0;
  after_cuda({logits, labels}, [&](const Kernels& kernels, const Views& v) {
    // Row by row the device's own losses, added up here.
    for (std::int64_t row = 0; row < rows; ++row)
      expected +=
          kernels.softmax_cross_entropy(v[0].slice(2 * row, 2).reshaped({1, 2}), v[1].slice(row, 1), 1).loss_sum;
    CHECK(kernels.softmax_cross_entropy(v[0], v[1], rows).loss_sum == expected);
  });
}

TEST_CASE("rows of padding are not read on a GPU, and their gradient is zero") {
  for (const DType dtype : float_types) {
    const Tensor logits = generate(
        dtype, {70, 10}, [](std::int64_t i) { return i < 40 * 10 ? static_cast<double>(i % 7) : not_a_number; });
    std::vector<std::int32_t> labels(70, 99);
    std::fill_n(labels.begin(), 40, 3);
    check_like_reference_with_samples(logits, Tensor::from(labels, {70}), 40);
    CHECK(after_cuda({Tensor::zeros(dtype, {0, 3}), Tensor::from(std::vector<std::int32_t>{}, {0})},
                     [](const Kernels& kernels, const Views& v) {
                       CHECK(kernels.softmax_cross_entropy(v[0], v[1], 0, v[0]).loss_sum == 0);
                       CHECK(kernels.softmax_cross_entropy(v[0], v[1], 0).correct == 0);
                     })
              .size() == 2);
  }
}

TEST_CASE("large logits do not overflow on a GPU, and what is not finite shows in the loss") {
  constexpr double inf = ops::infinity;
  struct Row {
    std::vector<double> logits;
    std::int32_t label;
  };
  std::vector<Row> rows{{{1000, 1000, 1000}, 0}, {{-1000, 1000, 0}, 0}, {{-inf, 0, 0}, 1}, {{-inf, 0, 0}, 0},
                        {{0, inf, 0}, 1},        {{-inf, -inf}, 0},     {{0, 1, inf}, 0}};
  for (const std::int32_t label : {0, 1, 2}) {
    rows.push_back({{0, 1, not_a_number}, label});
    rows.push_back({{not_a_number, 1, 0}, label});
  }
  for (const std::size_t bad : {0, 31, 32, 63}) {
    std::vector<double> wide(64, 1.);
    wide[bad] = not_a_number;
    rows.push_back({wide, 5});
  }
  for (const DType dtype : float_types)
    for (const Row& row : rows) {
      const auto classes = static_cast<std::int64_t>(row.logits.size());
      const Tensor logits =
          generate(dtype, {1, classes}, [&](std::int64_t i) { return row.logits[static_cast<std::size_t>(i)]; });
      std::vector<BatchLoss> results;
      check_like_reference({logits, ops::i32({row.label}), filled(dtype, {1, classes}, 0)},
                           row_tolerance(dtype, classes), [&](const Kernels& kernels, const Views& v) {
                             results.push_back(kernels.softmax_cross_entropy(v[0], v[1], 1, v[2]));
                           });
      for (const BatchLoss& result : results) {
        CHECK(result.correct == results.front().correct);
        CHECK(std::isnan(result.loss_sum) == std::isnan(results.front().loss_sum));
        CHECK(std::isinf(result.loss_sum) == std::isinf(results.front().loss_sum));
        if (const double loss = results.front().loss_sum; std::isfinite(result.loss_sum))
          CHECK(std::abs(result.loss_sum - loss) <= loss_tolerance(dtype, classes, 1, std::abs(loss)));
      }
    }
}

TEST_CASE("a label that is no class is refused on a GPU in the host's words, and nothing is written") {
  constexpr std::int64_t rows = 3000;
  const Tensor logits = noise(DType::f32, {rows, 10}, 1);
  const Tensor untouched = filled(DType::f32, {rows, 10}, 7);
  const std::vector<std::vector<std::pair<std::size_t, std::int32_t>>> cases{
      {{0, 10}},     {{0, -1}}, {{2999, 10}}, {{1023, -5}, {1024, 12}}, {{2047, 77}, {1500, 78}, {2999, 79}},
      {{1, 1 << 30}}};
  for (const auto& bad : cases) {
    std::vector<std::int32_t> labels(rows, 9);
    for (const auto& [row, label] : bad) labels[row] = label;
    std::vector<std::string> messages;
    const auto call = [&](const Kernels& kernels, const Views& v) {
      messages.push_back(ops::refusal([&] { kernels.softmax_cross_entropy(v[0], v[1], rows, v[2]); }));
      messages.push_back(ops::refusal([&] { kernels.softmax_cross_entropy(v[0], v[1], rows); }));
    };
    check_like_reference({logits, Tensor::from(labels, {rows}), untouched}, 0, call);
    for (const std::string& message : messages) CHECK(message == messages.front());
    CHECK_THAT(messages.front(), Catch::StartsWith("softmax_cross_entropy: label "));
  }
}

TEST_CASE("many losses of a GPU wait for one look of the host, and a bad label spoils its own alone") {
  std::vector<ops::Answer<BatchLoss>> answers;
  std::vector<BatchLoss> expected;
  std::vector<OnGpu> operands;
  for (std::int64_t i = 0; i < 70; ++i) {
    const Shape shape{1 + i % 5, 4};
    const Tensor logits = logits_of(DType::f32, shape, static_cast<std::uint64_t>(i));
    const Tensor labels = i == 61 ? ops::i32({3, 4}) : labels_of(shape, static_cast<std::uint64_t>(i));
    const std::int64_t samples = i == 61 ? 1 : shape[0];
    expected.push_back(gpu().kernels.softmax_cross_entropy(OnGpu{logits}.view(), OnGpu{labels}.view(), samples));
    operands.emplace_back(logits);
    operands.emplace_back(labels);
    const TensorView &x = operands[operands.size() - 2].view(), &y = operands.back().view();
    answers.push_back(inside(gpu().kernels).start_softmax_cross_entropy(x, y, shape[0]));
  }
  gpu().stream.synchronize();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    CAPTURE(i);
    if (i == 61) {
      CHECK_THROWS_WITH(answers[i].read(), Catch::StartsWith("softmax_cross_entropy: label 4 of row 1 "));
      continue;
    }
    CHECK(answers[i].read().loss_sum == expected[i].loss_sum);
    CHECK(answers[i].read().correct == expected[i].correct);
  }
}

TEST_CASE("softmax cross-entropy on a GPU has the same bits every time", "[large]") {
  for (const DType dtype : float_types)
    for (const Shape& shape : {Shape{256, 10}, Shape{1000, 100}, Shape{5000, 10}}) {
      std::vector<double> losses;
      check_repeats({logits_of(dtype, shape, 1), labels_of(shape, 2), filled(dtype, shape, 0)},
                    [&](const Kernels& kernels, const Views& v) {
                      losses.push_back(kernels.softmax_cross_entropy(v[0], v[1], shape[0], v[2]).loss_sum);
                    });
      CHECK(losses == std::vector<double>(losses.size(), losses.front()));
    }
}
