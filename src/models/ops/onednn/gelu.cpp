#include "models/ops/onednn/gelu.hpp"

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <lockstep/core/base/error.hpp>

namespace lockstep::ops::onednn {
namespace {

constexpr auto tanh_form = dnnl::algorithm::eltwise_gelu_tanh;

dnnl::memory::desc flat(const TensorView& view) {
  const auto type = view.dtype() == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  return {{view.count()}, type, dnnl::memory::format_tag::a};
}

dnnl::memory memory_of(const TensorView& view, const dnnl::engine& engine) {
  return {flat(view), engine, view.data()};
}

dnnl::eltwise_forward::primitive_desc describe_forward(const TensorView& x, const dnnl::engine& engine) {
  return {{dnnl::prop_kind::forward_training, tanh_form, flat(x), 0, 0}, engine};
}

/// The library caches what it generated for a shape, so asking again costs a microsecond.
template <class Body>
void with_library(const TensorView& x, Body&& body) {
  try {
    const dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    body(engine, stream);
    stream.wait();
  } catch (const dnnl::error& error) {
    throw DeviceError{fmt::format("oneDNN failed with status {} on gelu of {}: {}", static_cast<int>(error.status),
                                  lockstep::describe(x), error.what())};
  }
}

}  // namespace

void gelu(const TensorView& x, const TensorView& y) {
  with_library(x, [&](const dnnl::engine& engine, dnnl::stream& stream) {
    dnnl::eltwise_forward{describe_forward(x, engine)}.execute(
        stream, {{DNNL_ARG_SRC, memory_of(x, engine)}, {DNNL_ARG_DST, memory_of(y, engine)}});
  });
}

void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) {
  with_library(x, [&](const dnnl::engine& engine, dnnl::stream& stream) {
    const dnnl::eltwise_backward::primitive_desc description{
        {tanh_form, flat(dx), flat(x), 0, 0}, engine, describe_forward(x, engine)};
    dnnl::eltwise_backward{description}.execute(stream, {{DNNL_ARG_SRC, memory_of(x, engine)},
                                                         {DNNL_ARG_DIFF_DST, memory_of(dy, engine)},
                                                         {DNNL_ARG_DIFF_SRC, memory_of(dx, engine)}});
  });
}

}  // namespace lockstep::ops::onednn
