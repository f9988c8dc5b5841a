#include "models/ops/onednn/narrow_products.hpp"

#include <unordered_map>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <lockstep/core/base/error.hpp>

#include "models/ops/onednn/plans.hpp"
#include "models/ops/onednn/threads.hpp"

namespace lockstep::ops {
namespace {

using dnnl::memory;

memory::desc matrix(std::int64_t rows, std::int64_t columns, std::int64_t stride, Kernels::Transpose transpose,
                    memory::data_type type) {
  const bool flip = transpose == Kernels::Transpose::yes;
  return {{rows, columns}, type, flip ? memory::dims{1, stride} : memory::dims{stride, 1}};
}

class NarrowPlan {
 public:
  explicit NarrowPlan(const NarrowProduct& product)
      : a_{matrix(product.m, product.k, product.a_stride, product.transpose_a, memory::data_type::bf16)},
        b_{matrix(product.k, product.n, product.b_stride, product.transpose_b, memory::data_type::bf16)},
        bias_{product.has_bias ? matrix(1, product.n, product.n, Kernels::Transpose::no, memory::data_type::f32)
                               : memory::desc{}},
        c_{matrix(product.m, product.n, product.c_stride, Kernels::Transpose::no,
                  product.result == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32)} {
    dnnl::primitive_attr attributes = own_scratchpad();
    if (product.scale != 1) attributes.set_output_scales(0, {product.scale});
    const dnnl::matmul::primitive_desc description{{a_, b_, bias_, c_}, attributes, engine_};
    primitive_ = dnnl::matmul{description};
    scratchpad_ = memory{description.scratchpad_desc(), engine_};
  }

  void execute(const BFloat16* a, const BFloat16* b, const float* bias, void* c) {
    std::unordered_map<int, memory> operands{{DNNL_ARG_SRC, at(a_, a)},
                                             {DNNL_ARG_WEIGHTS, at(b_, b)},
                                             {DNNL_ARG_DST, memory{c_, engine_, c}},
                                             {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    if (!bias_.is_zero()) operands.emplace(DNNL_ARG_BIAS, at(bias_, bias));
    primitive_.execute(stream_, operands);
  }

 private:
  /// The library cannot mark an operand as read-only.
  memory at(const memory::desc& layout, const void* data) const { return {layout, engine_, const_cast<void*>(data)}; }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  memory::desc a_, b_, bias_, c_;
  dnnl::primitive primitive_;
  memory scratchpad_;
};

}  // namespace

bool has_narrow_products() {
  return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

class NarrowProducts::Kept : public Plans<NarrowProduct, NarrowPlan> {};

NarrowProducts::NarrowProducts(Kernels::Threads threads) : threads_{threads}, kept_{std::make_unique<Kept>()} {}
NarrowProducts::~NarrowProducts() = default;

void NarrowProducts::multiply(const NarrowProduct& product, const BFloat16* a, const BFloat16* b, const float* bias,
                              void* c) const {
  const OpenMpThreads threads{threads_};
  try {
    kept_->use(product, [&](NarrowPlan& plan) { plan.execute(a, b, bias, c); });
  } catch (const dnnl::error& error) {
    throw DeviceError{fmt::format("oneDNN failed with status {} on a product of {} x {} x {} of bf16: {}",
                                  static_cast<int>(error.status), product.m, product.n, product.k, error.what())};
  }
}

}  // namespace lockstep::ops
