// What kernels for sequences refuse, and in which words.
#include <functional>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "models/ops/reference/reference.hpp"
#include "models/ops/sequence_kernels.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

Tensor sevens(Shape shape, DType dtype = DType::f32) {
  return filled(dtype, std::move(shape), 7);
}

/// A call's operands, of which one at a time is replaced. `written` are those that a refusal must leave alone.
template <class Operands>
struct Refusable {
  Operands good;
  std::vector<Tensor> memory;
  std::function<void(const Operands&)> call;

  /// What is said of the good operands with `member` in another's place.
  std::string with(TensorView Operands::*member, const TensorView& other) const {
    Operands operands = good;
    operands.*member = other;
    return refusal([&] { call(operands); });
  }

  bool untouched() const {
    for (const Tensor& each : memory)
      for (const double value : in_double(each))
        if (value != 7) return false;
    return true;
  }
};

Refusable<LayerNorm> layer_norm_case(const Kernels& kernels) {
  const std::vector<Tensor> memory{sevens({4, 6}), sevens({6}), sevens({6}), sevens({4, 6}), sevens({4, 2})};
  return {{memory[0].view(), memory[1].view(), memory[2].view(), 1e-5, memory[3].view(), memory[4].view()},
          memory,
          [&](const LayerNorm& operands) { kernels.sequence().layer_norm(operands); }};
}

Refusable<LayerNormGradient> layer_norm_gradient_case(const Kernels& kernels) {
  const std::vector<Tensor> memory{sevens({4, 6}), sevens({6}), sevens({4, 2}), sevens({4, 6}),
                                   sevens({4, 6}), sevens({6}), sevens({6})};
  return {{memory[0].view(), memory[1].view(), memory[2].view(), memory[3].view(), memory[4].view(), memory[5].view(),
           memory[6].view()},
          memory,
          [&](const LayerNormGradient& operands) { kernels.sequence().layer_norm_gradient(operands); }};
}

// Two windows of 3 positions, 2 heads of 2.
Refusable<CausalAttention> attention_case(const Kernels& kernels) {
  const std::vector<Tensor> memory{sevens({6, 12}), sevens({2, 2, 3, 3}), sevens({6, 4})};
  return {{memory[0].view(), memory[1].view(), memory[2].view()}, memory, [&](const CausalAttention& operands) {
            kernels.sequence().causal_attention(operands);
          }};
}

Refusable<CausalAttentionGradient> attention_gradient_case(const Kernels& kernels) {
  const std::vector<Tensor> memory{sevens({6, 12}), sevens({2, 2, 3, 3}), sevens({6, 4}), sevens({6, 12}),
                                   sevens({2, 3, 3})};
  return {{memory[0].view(), memory[1].view(), memory[2].view(), memory[3].view(), memory[4].view()},
          memory,
          [&](const CausalAttentionGradient& operands) { kernels.sequence().causal_attention_gradient(operands); }};
}

}  // namespace

TEST_CASE("rows and indices that do not fit are refused, and nothing is written") {
  const Tensor table = sevens({3, 2}), rows = sevens({4, 2});
  for (const auto& kernels : all_kernels()) {
    const auto gather = [&](const Tensor& t, const Tensor& i, const Tensor& r) {
      return refusal([&] { kernels->sequence().gather_rows(t.view(), i.view(), r.view()).wait(); });
    };
    const auto scatter = [&](const Tensor& r, const Tensor& i, const Tensor& t) {
      return refusal([&] { kernels->sequence().scatter_add_rows(r.view(), i.view(), t.view()); });
    };
    const Tensor good = i32({0, 1, 2, 0});
    CHECK(gather(table, good, sevens({4, 3})) == "gather_rows: rows is f32[4, 3], expected f32[4, 2]");
    CHECK(gather(table, good, sevens({4, 2}, DType::f64)) == "gather_rows: rows is f64[4, 2], expected f32[4, 2]");
    CHECK(gather(table, i32({0, 1, 2}), rows) == "gather_rows: indices is i32[3], expected i32[4]");
    CHECK(gather(table, sevens({4}), rows) == "gather_rows: indices is f32[4], expected i32[4]");
    CHECK(gather(sevens({6}), good, rows) == "gather_rows: expected two dimensions, not f32[6]");
    CHECK(gather(good, good, rows) == "gather_rows: expected f32, f64 or bf16, not i32[4]");
    CHECK(gather(table, good, table) == "gather_rows: indices is i32[4], expected i32[3]");
    CHECK(gather(rows, good, rows) == "gather_rows: f32[4, 2] and f32[4, 2] overlap in memory");
    CHECK(gather(table, i32({0, 1, 3, 0}), rows) ==
          "gather_rows: index 3 at position 2 is outside of [0, 3), the rows of f32[3, 2]");
    CHECK(scatter(sevens({4, 1}), good, table) == "scatter_add_rows: rows is f32[4, 1], expected f32[4, 2]");
    CHECK(scatter(rows, i32({0}), table) == "scatter_add_rows: indices is i32[1], expected i32[4]");
    CHECK(scatter(rows, i32({0, 1, 2, -1}), table) ==
          "scatter_add_rows: index -1 at position 3 is outside of [0, 3), the rows of f32[3, 2]");
    // The same memory as indices and as floats.
    const TensorView indices{rows.view().data(), {4}, DType::i32};
    CHECK(refusal([&] { kernels->sequence().gather_rows(table.view(), indices, rows.view()).wait(); }) ==
          "gather_rows: f32[4, 2] and i32[4] overlap in memory");
    const TensorView in_table{table.view().data(), {4}, DType::i32};
    CHECK(refusal([&] { kernels->sequence().scatter_add_rows(rows.view(), in_table, table.view()); }) ==
          "scatter_add_rows: f32[3, 2] and i32[4] overlap in memory");
  }
  CHECK(in_double(table) == std::vector<double>(6, 7));
  CHECK(in_double(rows) == std::vector<double>(8, 7));
}

TEST_CASE("operands of layer norm that do not fit are refused by name, and nothing is written") {
  for (const auto& kernels : all_kernels()) {
    const auto forward = layer_norm_case(*kernels);
    const std::string norm = "layer_norm: ";
    CHECK(forward.with(&LayerNorm::x, sevens({24}).view()) == norm + "expected two dimensions, not f32[24]");
    CHECK(forward.with(&LayerNorm::x, sevens({4, 5}).view()) == norm + "gain is f32[6], expected f32[5]");
    CHECK(forward.with(&LayerNorm::x, sevens({4, 6}, DType::f64).view()) ==
          norm + "f32[4, 6] and f64[4, 6] are not of one type");
    CHECK(forward.with(&LayerNorm::gain, sevens({5}).view()) == norm + "gain is f32[5], expected f32[6]");
    CHECK(forward.with(&LayerNorm::bias, sevens({1, 6}).view()) == norm + "bias is f32[1, 6], expected f32[6]");
    CHECK(forward.with(&LayerNorm::y, sevens({6, 4}).view()) == norm + "y is f32[6, 4], expected f32[4, 6]");
    CHECK(forward.with(&LayerNorm::moments, sevens({4}).view()) == norm + "moments is f32[4], expected f32[4, 2]");
    CHECK(forward.with(&LayerNorm::gain, TensorView{nullptr, {6}, DType::f32, DeviceKind::cuda}) ==
          norm + "f32[6] is in the memory of a cuda device, expected the host's");
    CHECK(forward.with(&LayerNorm::y, forward.good.x) == norm + "f32[4, 6] and f32[4, 6] overlap in memory");
    CHECK(forward.with(&LayerNorm::bias, forward.good.y.slice(18, 6)) ==
          norm + "f32[4, 6] and f32[6] overlap in memory");
    CHECK(forward.with(&LayerNorm::moments, forward.good.x.slice(0, 8).reshaped({4, 2})) ==
          norm + "f32[4, 2] and f32[4, 6] overlap in memory");
    for (const double epsilon : {0., -1., not_a_number, infinity}) {
      LayerNorm operands = forward.good;
      operands.epsilon = epsilon;
      CHECK_THAT(refusal([&] { kernels->sequence().layer_norm(operands); }),
                 Catch::StartsWith(norm + "the epsilon is ") && Catch::EndsWith(", expected a positive number"));
    }
    CHECK(forward.untouched());

    using Gradient = LayerNormGradient;
    const auto backward = layer_norm_gradient_case(*kernels);
    const std::string gradient = "layer_norm_gradient: ";
    CHECK(backward.with(&Gradient::x, sevens({4, 5}).view()) == gradient + "gain is f32[6], expected f32[5]");
    CHECK(backward.with(&Gradient::moments, sevens({4, 1}).view()) ==
          gradient + "moments is f32[4, 1], expected f32[4, 2]");
    CHECK(backward.with(&Gradient::dy, sevens({3, 6}).view()) == gradient + "dy is f32[3, 6], expected f32[4, 6]");
    CHECK(backward.with(&Gradient::dx, sevens({3, 6}).view()) == gradient + "dx is f32[3, 6], expected f32[4, 6]");
    CHECK(backward.with(&Gradient::d_gain, sevens({7}).view()) == gradient + "d_gain is f32[7], expected f32[6]");
    CHECK(backward.with(&Gradient::d_bias, sevens({6}, DType::f64).view()) ==
          gradient + "d_bias is f64[6], expected f32[6]");
    CHECK(backward.with(&Gradient::dx, backward.good.x) == gradient + "f32[4, 6] and f32[4, 6] overlap in memory");
    CHECK(backward.with(&Gradient::d_gain, backward.good.gain) == gradient + "f32[6] and f32[6] overlap in memory");
    CHECK(backward.with(&Gradient::d_bias, backward.good.d_gain) == gradient + "f32[6] and f32[6] overlap in memory");
    CHECK(backward.untouched());
  }
}

TEST_CASE("operands of gelu that do not fit are refused") {
  for (const auto& kernels : all_kernels()) {
    const Tensor x = sevens({8}), y = sevens({8});
    CHECK(refusal([&] { kernels->sequence().gelu(x.view(), sevens({7}).view()); }) ==
          "gelu: f32[8] and f32[7] are not of one shape");
    CHECK(refusal([&] { kernels->sequence().gelu(x.view().slice(0, 6), x.view().slice(1, 6)); }) ==
          "gelu: f32[6] and f32[6] overlap in memory");
    CHECK(refusal([&] { kernels->sequence().gelu_gradient(x.view(), y.view(), x.view()); }) ==
          "gelu_gradient: f32[8] and f32[8] overlap in memory");
    CHECK(refusal([&] { kernels->sequence().gelu_gradient(x.view(), sevens({8}, DType::f64).view(), y.view()); }) ==
          "gelu_gradient: f64[8] and f32[8] are not of one type");
    CHECK(in_double(x) == std::vector<double>(8, 7));
    CHECK(in_double(y) == std::vector<double>(8, 7));
  }
}

TEST_CASE("operands of attention that do not fit are refused by name, and nothing is written") {
  for (const auto& kernels : all_kernels()) {
    const auto forward = attention_case(*kernels);
    const std::string attention = "causal_attention: ";
    CHECK(forward.with(&CausalAttention::qkv, sevens({5, 12}).view()) ==
          attention + "qkv is f32[5, 12], expected f32[6, 12]");
    for (const std::int64_t columns : {0, 4, 9})
      CHECK_THAT(forward.with(&CausalAttention::qkv, sevens({6, columns}).view()),
                 Catch::EndsWith("are not queries, keys and values of the heads of f32[2, 2, 3, 3]"));
    CHECK(forward.with(&CausalAttention::qkv, sevens({72}).view()) ==
          attention + "expected two dimensions, not f32[72]");
    CHECK(forward.with(&CausalAttention::kept, sevens({4, 3, 3}).view()) ==
          attention + "kept is f32[4, 3, 3], expected [windows, heads, context, context]");
    CHECK(forward.with(&CausalAttention::kept, sevens({2, 2, 3, 4}).view()) ==
          attention + "kept is f32[2, 2, 3, 4], expected f32[2, 2, 3, 3]");
    CHECK_THAT(forward.with(&CausalAttention::kept, sevens({2, 0, 3, 3}).view()),
               Catch::Contains("are not queries, keys and values"));
    CHECK(forward.with(&CausalAttention::y, sevens({6, 3}).view()) == attention + "y is f32[6, 3], expected f32[6, 4]");
    CHECK(forward.with(&CausalAttention::y, sevens({6, 4}, DType::f64).view()) ==
          attention + "y is f64[6, 4], expected f32[6, 4]");
    CHECK(forward.with(&CausalAttention::y, forward.good.qkv.slice(48, 24).reshaped({6, 4})) ==
          attention + "f32[6, 4] and f32[6, 12] overlap in memory");
    CHECK(forward.with(&CausalAttention::kept, forward.good.qkv.slice(0, 36).reshaped({2, 2, 3, 3})) ==
          attention + "f32[2, 2, 3, 3] and f32[6, 12] overlap in memory");
    CHECK(forward.untouched());

    using Gradient = CausalAttentionGradient;
    const auto backward = attention_gradient_case(*kernels);
    const std::string gradient = "causal_attention_gradient: ";
    CHECK(backward.with(&Gradient::dy, sevens({6, 5}).view()) == gradient + "dy is f32[6, 5], expected f32[6, 4]");
    CHECK(backward.with(&Gradient::d_qkv, sevens({6, 4}).view()) ==
          gradient + "d_qkv is f32[6, 4], expected f32[6, 12]");
    CHECK(backward.with(&Gradient::scratch, sevens({6, 6}).view()) ==
          gradient + "scratch is f32[6, 6], expected f32[2, 3, 3]");
    CHECK(backward.with(&Gradient::d_qkv, backward.good.qkv) ==
          gradient + "f32[6, 12] and f32[6, 12] overlap in memory");
    CHECK(backward.with(&Gradient::scratch, backward.good.kept.slice(0, 18).reshaped({2, 3, 3})) ==
          gradient + "f32[2, 3, 3] and f32[2, 2, 3, 3] overlap in memory");
    CHECK(backward.untouched());
  }
}
