// The GPU's kernels as a whole: their name, what they refuse, and who may call them.
#include <cstdlib>
#include <functional>
#include <thread>

#include <lockstep/core/base/error.hpp>

#include "gpu_support.hpp"
#include "sync/update/update_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Choice = Kernels::Choice;

namespace {

Tensor on_gpu(const Tensor& values) {
  return Tensor::copy_of(values.view(), gpu().stream);
}

}  // namespace

TEST_CASE("a GPU's stream gets the cuda kernels, and those alone") {
  CHECK(ops::make_kernels(Choice::automatic, {}, gpu().stream)->name() == "cuda");
  CHECK(gpu().kernels.name() == "cuda");
  CHECK_THROWS_AS(ops::make_kernels(Choice::reference, {}, gpu().stream), ConfigError);
  CHECK_THROWS_AS(ops::make_kernels(Choice::onednn, {}, gpu().stream), ConfigError);
  CHECK_THROWS_AS(ops::make_kernels(Choice::cuda), ConfigError);
  CHECK_THROWS_AS(ops::make_kernels(Choice::cuda, {.count = 0}, gpu().stream), InvalidArgument);
}

TEST_CASE("the fingerprint names the GPU, cuBLASLt and CUDA, and stays the same") {
  const std::string fingerprint = gpu().kernels.fingerprint();
  WARN(fingerprint);
  CHECK_THAT(fingerprint, Catch::Contains(", compute capability ") && Catch::Contains(" multiprocessors, cuBLASLt ") &&
                              Catch::Contains(", CUDA ") && Catch::Contains(", driver for CUDA "));
  CHECK(ops::make_kernels(Choice::cuda, {}, gpu().stream)->fingerprint() == fingerprint);
  // This one is a number that nothing here is computed with.
  ::setenv("CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT", "50", 1);
  CHECK(ops::make_kernels(Choice::cuda, {}, gpu().stream)->fingerprint() ==
        fingerprint + ", CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT=50");
  ::unsetenv("CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT");
}

TEST_CASE("a GPU's kernels refuse the host's memory in any place, and the host's kernels a GPU's") {
  const Tensor matrix = noise(DType::f32, {2, 2}, 1);
  const Tensor vector = noise(DType::f32, {2}, 2);
  const Tensor labels = ops::i32({0, 1});
  struct Call {
    std::string name;
    Operands operands;
    std::function<void(const Kernels&, const Views&)> call;
  };
  const Operands matrices(3, matrix);
  static constexpr detail::UpdateStep step{.learning_rate = 1};
  const std::vector<Call> calls{
      {"matmul", matrices,
       [](const Kernels& k, const Views& v) { k.matmul(v[0], Transpose::no, v[1], Transpose::no, v[2]); }},
      {"sum_of_products", matrices,
       [](const Kernels& k, const Views& v) {
         k.sum_of_products(std::vector<ops::Kernels::Factors>{{v[0], v[1]}}, v[2]);
       }},
      {"linear",
       {matrix, matrix, vector, matrix},
       [](const Kernels& k, const Views& v) { k.linear(v[0], v[1], v[2], Activation::relu, v[3]); }},
      {"add_bias", {matrix, vector}, [](const Kernels& k, const Views& v) { k.add_bias(v[0], v[1]); }},
      {"sum_rows", {matrix, vector}, [](const Kernels& k, const Views& v) { k.sum_rows(v[0], v[1]); }},
      {"relu", {matrix, matrix}, [](const Kernels& k, const Views& v) { k.relu(v[0], v[1]); }},
      {"relu_gradient", matrices, [](const Kernels& k, const Views& v) { k.relu_gradient(v[0], v[1], v[2]); }},
      {"softmax_cross_entropy",
       {matrix, labels, matrix},
       [](const Kernels& k, const Views& v) { k.softmax_cross_entropy(v[0], v[1], 2, v[2]); }},
      {"softmax_cross_entropy",
       {matrix, labels},
       [](const Kernels& k, const Views& v) { k.softmax_cross_entropy(v[0], v[1], 2); }},
      {"convert",
       {matrix, noise(DType::bf16, {2, 2}, 1)},
       [](const Kernels& k, const Views& v) { k.convert(v[0], v[1]); }},
      {"add", {matrix, matrix}, [](const Kernels& k, const Views& v) { k.add(v[0], v[1]); }},
      {"sgd", {matrix, matrix}, [](const Kernels& k, const Views& v) { update_of(k).sgd(v[0], v[1], step); }},
      {"momentum", matrices,
       [](const Kernels& k, const Views& v) { update_of(k).momentum(v[0], v[1], v[2], step, 0.5); }},
      {"adamw", Operands(4, matrix),
       [](const Kernels& k, const Views& v) { update_of(k).adamw(v[0], v[1], v[2], v[3], step, {}); }},
      {"sum_of_squares", {matrix, vector}, [](const Kernels& k, const Views& v) { update_of(k).sum_of_squares(v); }},
      {"block_squares",
       {matrix, noise(DType::f64, {1}, 1)},
       [](const Kernels& k, const Views& v) { update_of(k).block_squares(v[0], v[1]); }},
  };
  for (const Call& call : calls)
    for (std::size_t odd = 0; odd < call.operands.size(); ++odd) {
      CAPTURE(call.name, odd);
      for (const bool odd_on_gpu : {false, true}) {
        Operands operands;
        Views views;
        for (std::size_t i = 0; i < call.operands.size(); ++i) {
          const bool there = (i == odd) == odd_on_gpu;
          operands.push_back(there ? on_gpu(call.operands[i]) : Tensor::copy_of(call.operands[i].view()));
          views.push_back(operands.back().view());
        }
        const Kernels& kernels = odd_on_gpu ? gpu().reference : gpu().kernels;
        const std::string where = odd_on_gpu ? "is in the memory of a cuda device, expected the host's"
                                             : "is in the memory of the host, expected a cuda device's";
        CHECK_THROWS_AS(call.call(kernels, views), InvalidArgument);
        CHECK_THROWS_WITH(call.call(kernels, views), Catch::StartsWith(call.name + ": ") && Catch::EndsWith(where));
        for (std::size_t i = 0; i < operands.size(); ++i)
          CHECK(ops::same_bits(Tensor::on_host(operands[i].view()).view(), call.operands[i].view()));
      }
    }
}

TEST_CASE("a GPU's kernels refuse shapes, types, overlaps and numbers in the host's words") {
  const auto refused_alike = [](const Operands& operands, const auto& call) {
    std::vector<std::string> messages;
    check_like_reference(operands, exactly, [&](const Kernels& kernels, const Views& v) {
      messages.push_back(ops::refusal([&] { call(kernels, v); }));
    });
    for (const std::string& each : messages) CHECK(each == messages.front());
    CHECK(messages.front() != "not refused");
  };
  const Tensor a = noise(DType::f32, {2, 3}, 1);
  const Tensor b = noise(DType::f32, {3, 2}, 2);
  const Tensor f64s = noise(DType::f64, {2, 3}, 3);
  const Tensor flat = noise(DType::f32, {8}, 4);
  refused_alike({a, b},
                [](const Kernels& k, const Views& v) { k.matmul(v[0], Transpose::no, v[0], Transpose::no, v[1]); });
  refused_alike({a, f64s}, [](const Kernels& k, const Views& v) { k.add(v[0], v[1]); });
  refused_alike({a, b}, [](const Kernels& k, const Views& v) { k.relu(v[0], v[1]); });
  refused_alike({flat}, [](const Kernels& k, const Views& v) { k.relu(v[0].slice(0, 4), v[0].slice(1, 4)); });
  refused_alike({flat}, [](const Kernels& k, const Views& v) {
    update_of(k).sgd(v[0].slice(0, 4), v[0].slice(4, 4), {.learning_rate = 1, .divisor = 0});
  });
  refused_alike({a, b, ops::i32({0, 1})},
                [](const Kernels& k, const Views& v) { k.softmax_cross_entropy(v[0], v[2], 3, v[0]); });
}

TEST_CASE("threads may share a GPU's kernels") {
  const Tensor x = noise(DType::f32, {128, 784}, 1);
  const Tensor weight = noise(DType::f32, {784, 10}, 2);
  const Tensor bias = noise(DType::f32, {10}, 3);
  const Tensor labels = Tensor::from(std::vector<std::int32_t>(128, 4), {128});
  const auto losses_of = [&](double scale) {
    const OnGpu rows{ops::generate(DType::f32, x.shape(), [&](std::int64_t i) {
      return scale * x.view().elements<float>()[static_cast<std::size_t>(i)];
    })};
    const OnGpu weights{weight};
    const OnGpu biases{bias};
    const OnGpu classes{labels};
    const OnGpu logits{filled(DType::f32, {128, 10}, 0)};
    std::vector<double> losses;
    for (int i = 0; i < (grids_are_limited() ? 10 : 50); ++i) {
      gpu().kernels.linear(rows.view(), weights.view(), biases.view(), Activation::relu, logits.view());
      losses.push_back(gpu().kernels.softmax_cross_entropy(logits.view(), classes.view(), 128, logits.view()).loss_sum);
    }
    return losses;
  };
  const std::vector<double> scales{0.5, 1, 1.5, 2};
  std::vector<std::vector<double>> alone;
  for (const double scale : scales) alone.push_back(losses_of(scale));
  std::vector<std::vector<double>> together(scales.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < scales.size(); ++i)
      threads.emplace_back([&, i] { together[i] = losses_of(scales[i]); });
  }
  CHECK(together == alone);
  CHECK(alone[0] != alone[1]);
}

TEST_CASE("threads whose losses share a GPU's memory each get their own") {
  const auto losses_of = [](float logit, int times) {
    const OnGpu logits{generate(DType::f32, {2, 3}, [&](std::int64_t i) { return i % 3 == 1 ? logit : 0; })};
    const OnGpu classes{ops::i32({0, 1})};
    std::vector<double> losses;
    for (int i = 0; i < times; ++i)
      losses.push_back(gpu().kernels.softmax_cross_entropy(logits.view(), classes.view(), 2).loss_sum);
    return losses;
  };
  constexpr int times = 100;
  std::vector<std::vector<double>> together(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < together.size(); ++i)
      threads.emplace_back([&, i] { together[i] = losses_of(static_cast<float>(i), times); });
  }
  for (std::size_t i = 0; i < together.size(); ++i)
    CHECK(together[i] == std::vector<double>(times, losses_of(static_cast<float>(i), 1).front()));
}
