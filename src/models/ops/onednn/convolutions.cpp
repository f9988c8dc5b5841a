#include "models/ops/onednn/convolutions.hpp"

#include <unordered_map>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <lockstep/core/base/error.hpp>

#include "models/ops/onednn/narrow_products.hpp"
#include "models/ops/onednn/plans.hpp"
#include "models/ops/onednn/threads.hpp"

namespace lockstep::ops {
namespace {

using dnnl::memory;

/// How operands lie in the kernels' tensors. oneDNN lists dimensions in its own order. Activations and the weights that
/// they are multiplied by are of one type; biases and gradients of weights are f32.
struct Layouts {
  Layouts(const ConvolutionSizes& sizes, memory::data_type type)
      : x{{sizes.images, sizes.inputs, sizes.height, sizes.width}, type, memory::format_tag::nhwc},
        y{{sizes.images, sizes.outputs, sizes.rows(), sizes.columns()}, type, memory::format_tag::nhwc},
        bias{{sizes.outputs}, memory::data_type::f32, memory::format_tag::x},
        weight{{sizes.outputs, sizes.inputs, sizes.kernel_height, sizes.kernel_width}, type, memory::format_tag::hwio},
        packed_weight{weight.dims(), type, memory::format_tag::any},
        d_weight{weight.dims(), memory::data_type::f32, memory::format_tag::hwio},
        packed_d_weight{weight.dims(), memory::data_type::f32, memory::format_tag::any} {}

  memory::desc x;
  memory::desc y;
  memory::desc bias;
  memory::desc weight;
  memory::desc packed_weight;  ///< in the layout that the library asks for
  memory::desc d_weight;
  memory::desc packed_d_weight;
};

constexpr auto algorithm = dnnl::algorithm::convolution_direct;

dnnl::convolution_forward::primitive_desc forward_of(const Layouts& l, const dnnl::engine& engine) {
  return {{dnnl::prop_kind::forward_training, algorithm, l.x, l.packed_weight, l.bias, l.y, {1, 1}, {0, 0}, {0, 0}},
          own_scratchpad(),
          engine};
}

dnnl::convolution_backward_weights::primitive_desc gradients_of(const Layouts& l, const dnnl::engine& engine) {
  return {{algorithm, l.x, l.packed_d_weight, l.bias, l.y, {1, 1}, {0, 0}, {0, 0}},
          own_scratchpad(),
          engine,
          forward_of(l, engine)};
}

dnnl::convolution_backward_data::primitive_desc input_gradient_of(const Layouts& l, const dnnl::engine& engine) {
  return {
      {algorithm, l.x, l.packed_weight, l.y, {1, 1}, {0, 0}, {0, 0}}, own_scratchpad(), engine, forward_of(l, engine)};
}

}  // namespace

/// One direction for one shape. For one thread at a time.
class Convolutions::Plan {
 public:
  explicit Plan(const Key& key)
      : layouts_{key.sizes, key.dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32} {
    switch (key.direction) {
      case Direction::forward: {
        const auto description = forward_of(layouts_, engine_);
        keep(dnnl::convolution_forward{description}, description.weights_desc(), description);
        break;
      }
      case Direction::gradients: {
        const auto description = gradients_of(layouts_, engine_);
        keep(dnnl::convolution_backward_weights{description}, description.diff_weights_desc(), description);
        break;
      }
      case Direction::input_gradient: {
        const auto description = input_gradient_of(layouts_, engine_);
        keep(dnnl::convolution_backward_data{description}, description.weights_desc(), description);
        break;
      }
    }
  }

  void forward(const TensorView& x, const TensorView& weight, const TensorView& bias, const TensorView& y) {
    move(at(layouts_.weight, weight), packed_weight_);
    execute({{DNNL_ARG_SRC, at(layouts_.x, x)},
             {DNNL_ARG_WEIGHTS, packed_weight_},
             {DNNL_ARG_BIAS, at(layouts_.bias, bias)},
             {DNNL_ARG_DST, at(layouts_.y, y)}});
  }

  void gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight, const TensorView& d_bias) {
    execute({{DNNL_ARG_SRC, at(layouts_.x, x)},
             {DNNL_ARG_DIFF_DST, at(layouts_.y, dy)},
             {DNNL_ARG_DIFF_WEIGHTS, packed_weight_},
             {DNNL_ARG_DIFF_BIAS, at(layouts_.bias, d_bias)}});
    move(packed_weight_, at(layouts_.d_weight, d_weight));
  }

  void input_gradient(const TensorView& dy, const TensorView& weight, const TensorView& dx) {
    move(at(layouts_.weight, weight), packed_weight_);
    execute({{DNNL_ARG_DIFF_DST, at(layouts_.y, dy)},
             {DNNL_ARG_WEIGHTS, packed_weight_},
             {DNNL_ARG_DIFF_SRC, at(layouts_.x, dx)}});
  }

 private:
  void keep(dnnl::primitive primitive, const memory::desc& packed_weight,
            const dnnl::primitive_desc_base& description) {
    primitive_ = std::move(primitive);
    packed_weight_ = memory{packed_weight, engine_};
    scratchpad_ = memory{description.scratchpad_desc(), engine_};
  }

  /// The library cannot mark an operand as read-only.
  memory at(const memory::desc& layout, const TensorView& view) const { return {layout, engine_, view.data()}; }

  void move(memory from, memory to) { dnnl::reorder{from, to}.execute(stream_, from, to); }

  void execute(std::unordered_map<int, memory> operands) {
    operands.emplace(DNNL_ARG_SCRATCHPAD, scratchpad_);
    primitive_.execute(stream_, operands);
  }

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Layouts layouts_;
  dnnl::primitive primitive_;
  memory packed_weight_;
  memory scratchpad_;
};

class Convolutions::Kept : public Plans<Key, Plan> {};

Convolutions::Convolutions(Kernels::Threads threads) : threads_{threads}, kept_{std::make_unique<Kept>()} {}
Convolutions::~Convolutions() = default;

bool Convolutions::can_do(DType dtype, const ConvolutionSizes& sizes) {
  const bool has_instructions = dtype == DType::f32 || (dtype == DType::bf16 && has_narrow_products());
  return has_instructions && sizes.images > 0 && sizes.inputs > 0 && sizes.outputs > 0;
}

template <class Work>
void Convolutions::run(const Key& key, Work&& work) const {
  const OpenMpThreads threads{threads_};
  try {
    kept_->use(key, work);
  } catch (const dnnl::error& error) {
    const ConvolutionSizes& sizes = key.sizes;
    throw DeviceError{fmt::format("oneDNN failed on a convolution of {} images of {} x {} x {}: {} (status {})",
                                  sizes.images, sizes.height, sizes.width, sizes.inputs, error.what(),
                                  static_cast<int>(error.status))};
  }
}

void Convolutions::forward(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& weight,
                           const TensorView& bias, const TensorView& y) const {
  run({Direction::forward, y.dtype(), sizes}, [&](Plan& plan) { plan.forward(x, weight, bias, y); });
}

void Convolutions::gradients(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& dy,
                             const TensorView& d_weight, const TensorView& d_bias) const {
  run({Direction::gradients, x.dtype(), sizes}, [&](Plan& plan) { plan.gradients(x, dy, d_weight, d_bias); });
}

void Convolutions::input_gradient(const ConvolutionSizes& sizes, const TensorView& dy, const TensorView& weight,
                                  const TensorView& dx) const {
  run({Direction::input_gradient, dx.dtype(), sizes}, [&](Plan& plan) { plan.input_gradient(dy, weight, dx); });
}

}  // namespace lockstep::ops
