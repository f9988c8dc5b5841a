// What a replicated module is made of: its parameters and buffers as views of the strategy's memory, and the hooks by
// which autograd says that a gradient is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <lockstep/ops/kernels.hpp>
#include <lockstep/torch/data_parallel.hpp>

#include "optim/gradient_pieces.hpp"
#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

/// A pointer whose type depends on the version of torch.
using Accumulator = decltype(::torch::autograd::impl::grad_accumulator(at::Tensor{}));

struct Parameter {
  at::Tensor tensor;
  MirroredVariable variable;
  at::Tensor home;               ///< view of the store's values
  at::Tensor gradient;           ///< view of the store's
  Accumulator accumulator = {};  ///< kept, and with it the hook; null before it was needed
};

struct ModuleBuffer {
  at::Tensor tensor;
  MirroredVariable variable;
  at::Tensor home;
  at::Tensor known = {};  ///< what all ranks had after the last step

  bool is_real() const { return is_floating_point(variable.dtype()); }
  void note();
  void restore() const;
};

struct ReplicatedModule::Impl : std::enable_shared_from_this<Impl> {
  Impl(Strategy& strategy, ::torch::nn::Module& module, const DataParallelOptions& options, const Here& here);

  /// Copies parameters and buffers whose memory was replaced to the store's, and points them there. InvalidArgument for
  /// one that has another shape or type now.
  void bring_values_home();

  /// After somebody has written the store's values.
  void note_buffers();

  void require_loss(const Loss& loss) const;

  /// Takes note of what is frozen.
  void update_trained();

  /// By buffer: whether its bytes are not what was noted.
  std::vector<char> changed_buffers() const;

  /// The elements of the floating-point buffers, one after the other, as doubles. There must be some.
  at::Tensor real_elements() const;

  /// Before the first pass of a step. Gradients of earlier steps are put aside.
  void begin();

  /// Computes the gradients of the sum over the samples, and calls `take` when that of a parameter is in `.grad`.
  void run_autograd(const Loss& loss, const std::function<void(std::size_t)>& take);

  /// The sum over the samples; 0 if there are none. Waits for a GPU.
  double sum_of(const Loss& loss) const;

  void listen_to(std::size_t number);
  void on_gradient(std::size_t number);

  /// Moves `.grad` to the store, unless it is there.
  void bring_home(std::size_t number);

  /// On one rank, after autograd. Divides `.grad` where it is if nobody shares its memory, which spares the copy.
  void divide(std::size_t number, double divisor);

  void zero_grad();

  struct Accumulated {
    double samples = 0;
    double loss = 0;
    std::size_t witness = 0;               ///< a parameter with a gradient, which shows whether gradients were zeroed
    std::optional<unsigned> version = {};  ///< of that gradient; empty if there is none
  };
  bool was_zeroed() const;
  void note_accumulated(const Loss& loss);

  /// Gradients are there.
  std::vector<std::size_t> present() const;

  /// A tensor for `view` of the store's memory, which is `variable`'s; keeps it alive.
  at::Tensor tensor_of(const TensorView& view, const Variable& variable) const;
  at::Tensor home_of(const MirroredVariable& variable, const at::Tensor& tensor) const;

  VariableStore& store;
  std::unique_ptr<TorchDevice> device;
  std::vector<Parameter> parameters;
  std::vector<ModuleBuffer> buffers;
  std::shared_ptr<lockstep::detail::StoreGuest> guest;  ///< stays in the store as long as this lives
  std::int64_t reals = 0;                               ///< elements of the floating-point buffers

  std::vector<char> trains;                 ///< by parameter: not frozen
  std::vector<std::size_t> trained;         ///< parameters that are not
  std::vector<at::Tensor> inputs;           ///< the same as tensors
  lockstep::detail::GradientPieces pieces;  ///< of `trained`
  std::vector<at::Tensor> flat;             ///< the ranges of `pieces`
  std::string text;                         ///< what the ranks compare

  std::optional<Accumulated> accumulated;
  std::vector<char> has;                                    ///< by parameter: this step has a gradient
  std::vector<std::pair<std::size_t, at::Tensor>> earlier;  ///< gradients of earlier steps, to be added
  std::shared_ptr<const ops::Kernels> kernels;              ///< made when they are needed

 private:
  struct Pass {
    const std::function<void(std::size_t)>& take;
    std::vector<char> seen;  ///< by parameter
  };

  std::mutex mutex_;  ///< hooks may run on autograd's threads
  Pass* pass_ = nullptr;
};

/// "parameter 'w' has become f32[2]; expected f64[2], …" unless `now` can be copied to `home`.
void require_like(std::string_view what, const at::Tensor& now, const at::Tensor& home, std::string_view remedy);

/// "f32" of torch; nothing for types that variables cannot have.
std::optional<DType> dtype_of(at::ScalarType type);
at::ScalarType type_of(DType dtype);

/// In place.
void divide(at::Tensor& gradient, double divisor);

/// The elements of a contiguous tensor in memory of that kind.
TensorView view_of(const at::Tensor& tensor, DeviceKind kind = DeviceKind::cpu);

}  // namespace lockstep::libtorch
