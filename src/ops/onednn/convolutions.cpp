#include "ops/onednn/convolutions.hpp"

#include <unordered_map>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <lockstep/base/error.hpp>

#include "ops/onednn/threads.hpp"

namespace lockstep::ops {
namespace {

using dnnl::memory;

/// How operands lie in the kernels' tensors. oneDNN lists dimensions in its own order.
struct Layouts {
  explicit Layouts(const ConvolutionSizes& sizes)
      : x{{sizes.images, sizes.inputs, sizes.height, sizes.width}, memory::data_type::f32, memory::format_tag::nhwc},
        y{{sizes.images, sizes.outputs, sizes.rows(), sizes.columns()},
          memory::data_type::f32,
          memory::format_tag::nhwc},
        bias{{sizes.outputs}, memory::data_type::f32, memory::format_tag::x},
        weight{{sizes.outputs, sizes.inputs, sizes.kernel_height, sizes.kernel_width},
               memory::data_type::f32,
               memory::format_tag::hwio},
        packed_weight{weight.dims(), memory::data_type::f32, memory::format_tag::any} {}

  memory::desc x;
  memory::desc y;
  memory::desc bias;
  memory::desc weight;
  memory::desc packed_weight;  ///< in the layout that the library asks for
};

constexpr auto algorithm = dnnl::algorithm::convolution_direct;

/// The plan owns the scratch memory; memory of the library would tie a primitive to the thread that made it.
dnnl::primitive_attr own_scratchpad() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::convolution_forward::primitive_desc forward_of(const Layouts& l, const dnnl::engine& engine) {
  return {{dnnl::prop_kind::forward_training, algorithm, l.x, l.packed_weight, l.bias, l.y, {1, 1}, {0, 0}, {0, 0}},
          own_scratchpad(),
          engine};
}

dnnl::convolution_backward_weights::primitive_desc gradients_of(const Layouts& l, const dnnl::engine& engine) {
  return {{algorithm, l.x, l.packed_weight, l.bias, l.y, {1, 1}, {0, 0}, {0, 0}},
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
  Plan(Direction direction, const ConvolutionSizes& sizes) : layouts_{sizes} {
    switch (direction) {
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
    move(packed_weight_, at(layouts_.weight, d_weight));
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

Convolutions::Convolutions(Threads threads) : threads_{threads} {}
Convolutions::~Convolutions() = default;

bool Convolutions::can_do(DType dtype, const ConvolutionSizes& sizes) {
  return dtype == DType::f32 && sizes.images > 0 && sizes.inputs > 0 && sizes.outputs > 0;
}

std::unique_ptr<Convolutions::Plan> Convolutions::take_plan(const Key& key) const {
  {
    const std::lock_guard lock{mutex_};
    if (auto& idle = plans_[key]; !idle.empty()) {
      std::unique_ptr<Plan> plan = std::move(idle.back());
      idle.pop_back();
      return plan;
    }
  }
  return std::make_unique<Plan>(key.first, key.second);
}

void Convolutions::give_back(const Key& key, std::unique_ptr<Plan> plan) const {
  const std::lock_guard lock{mutex_};
  plans_[key].push_back(std::move(plan));
}

template <class Work>
void Convolutions::run(Direction direction, const ConvolutionSizes& sizes, Work&& work) const {
  const OpenMpThreads threads{threads_};
  try {
    const Key key{direction, sizes};
    std::unique_ptr<Plan> plan = take_plan(key);
    work(*plan);
    give_back(key, std::move(plan));
  } catch (const dnnl::error& error) {
    throw DeviceError{fmt::format("oneDNN failed on a convolution of {} images of {} x {} x {}: {} (status {})",
                                  sizes.images, sizes.height, sizes.width, sizes.inputs, error.what(),
                                  static_cast<int>(error.status))};
  }
}

void Convolutions::forward(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& weight,
                           const TensorView& bias, const TensorView& y) const {
  run(Direction::forward, sizes, [&](Plan& plan) { plan.forward(x, weight, bias, y); });
}

void Convolutions::gradients(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& dy,
                             const TensorView& d_weight, const TensorView& d_bias) const {
  run(Direction::gradients, sizes, [&](Plan& plan) { plan.gradients(x, dy, d_weight, d_bias); });
}

void Convolutions::input_gradient(const ConvolutionSizes& sizes, const TensorView& dy, const TensorView& weight,
                                  const TensorView& dx) const {
  run(Direction::input_gradient, sizes, [&](Plan& plan) { plan.input_gradient(dy, weight, dx); });
}

}  // namespace lockstep::ops
