// A replicated module: its parameters and buffers as views of the strategy's memory, and the gradients of its step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <lockstep/torch/data_parallel.hpp>

#include "core/base/element_type.hpp"
#include "sync/optim/gradient_pieces.hpp"
#include "sync/reduce/subtrees.hpp"
#include "sync/strategy/external_values.hpp"
#include "sync/update/update_kernels.hpp"
#include "torch/autograd_graph.hpp"
#include "torch/module_parts.hpp"
#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

/// What a parameter's gradient has of the accumulated passes of this rank.
struct Accumulated {
  bool has = false;         ///< a pass has led to a gradient
  std::uint64_t since = 0;  ///< number of the last pass that does not count: its gradient was zeroed after it
};

struct Parameter {
  at::Tensor tensor;
  MirroredVariable variable;
  at::Tensor home;      ///< view of the store's values
  at::Tensor gradient;  ///< view of the store's
  GradientHook hook = {};
  bool is_table = false;  ///< its gradient is sparse, so rows travel instead of `gradient`

  // Of this rank. Zeros in the place of zeros are a zero_grad or a clip: other ranks may know which.
  Accumulated if_zeroed = {}, if_kept = {};

  // What was done to its gradient between the passes of the step, as far as this rank can tell.
  bool was_zeroed = false;
  bool was_clipped = false;  ///< or written otherwise, and not zeroed since

  // The gradient that the last pass or step has left.
  at::Tensor left = {};
  unsigned version = 0;

  /// Nothing was done to it yet, and no pass of this step has led to a gradient.
  void begin() { if_zeroed.has = if_kept.has = was_zeroed = was_clipped = false; }

  /// As if there had been no pass up to number `last`.
  void forget(std::uint64_t last);

  /// What was done to the gradient that an accumulated pass has left.
  enum class Touch { none, zeroed, clipped, zeroed_or_clipped };
  void note(Touch touch, std::uint64_t last);

  /// A pass has led to a gradient.
  void note_gradient() { if_zeroed.has = if_kept.has = true; }

  /// After a pass or a step.
  void note_left();

  /// Nobody has written the gradient since then.
  bool is_untouched() const;
};

struct ModuleBuffer {
  at::Tensor tensor;
  MirroredVariable variable;
  at::Tensor home;
  at::Tensor known = {};        ///< what all ranks had after the last step
  bool is_statistic = false;    ///< of a norm of torch's
  unsigned version = 0;         ///< of the tensor, when that was noted
  bool is_unversioned = false;  ///< changed without a new version since then, as `torch::batch_norm` does

  bool is_real() const { return is_floating_point(variable.dtype()); }
  void note();
  void write(const at::Tensor& value) const;
  void restore() const { write(known); }
};

/// A gradient of an earlier step that was not zeroed, so that the next step adds to it.
struct EarlierGradient {
  std::size_t parameter;
  at::Tensor value;
  bool was_written;  ///< since that step, before a pass of the next one
};

/// A pass whose gradients wait for the step's last one. One of several modules counts once.
struct AccumulatedPass {
  AccumulatedPass(double count, double sum) : number{++made}, samples{count}, loss{sum} {}

  /// The number of the last pass so far.
  static std::uint64_t last() { return made; }

  static inline std::atomic<std::uint64_t> made = 0;
  std::uint64_t number;  ///< those of a rank ascend
  double samples;
  double loss;  ///< the sum
};

/// Flags of tensors that are all on one device. A GPU is waited for once.
class DeviceFlags {
 public:
  /// By gradient, dense or sparse: an element is not zero.
  static DeviceFlags nonzero(const std::vector<at::Tensor>& gradients);

  void add(bool flag) { on_host_.push_back(flag ? 1 : 0); }
  void add(const at::Tensor& flag) { on_gpu_.push_back(flag); }

  std::vector<char> read(TorchDevice& device) const;

 private:
  std::vector<char> on_host_;
  std::vector<at::Tensor> on_gpu_;
};

struct ReplicatedModule::Impl : std::enable_shared_from_this<Impl> {
  Impl(Strategy& strategy, ModuleParts module, const ReplicatedModule::Options& options, const Here& here);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  /// Moves parameters and buffers in other memory to the store's. InvalidArgument for another shape or type.
  void bring_values_home();

  /// After somebody has written the store's values.
  void note_buffers();

  /// Before a pass. Notes what was done to gradients since the last; begins a step unless an accumulated pass waits.
  void look_at_gradients();

  /// Next. Takes note of what is frozen. InvalidArgument for parameters and buffers that the strategy does not know.
  void prepare();

  /// ContextError inside a pass.
  void require_idle() const;

  /// While one lives, the modules are in a pass.
  class Busy {
   public:
    explicit Busy(const std::vector<Impl*>& modules) : modules_{modules} { set(true); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() { set(false); }

   private:
    void set(bool is_busy) const {
      for (Impl* const module : modules_) module->is_busy_ = is_busy;
    }

    const std::vector<Impl*>& modules_;
  };

  /// By buffer: whether its bytes are not what was noted. Before anything else reads the buffers after a forward pass.
  std::vector<char> changed_buffers();

  /// While one lives, autograd may compute gradients of this module. `take`, if given, gets each by its number.
  class Pass {
   public:
    Pass(Impl& module, std::function<void(std::size_t)> take)
        : module_{module}, take_{std::move(take)}, seen_(module.parameters.size()) {
      (void)module_.exchange_pass(this);
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { (void)module_.exchange_pass(nullptr); }

   private:
    friend struct Impl;
    Impl& module_;
    std::function<void(std::size_t)> take_;
    std::vector<char> seen_;  ///< by parameter
  };

  /// For passes that take turns. Returns the one that was open; null if none is.
  Pass* exchange_pass(Pass* pass) {
    const std::lock_guard lock{mutex_};
    return std::exchange(pass_, pass);
  }

  /// If the program has kept the tensor of the gradient of an earlier step, it keeps its values, in memory of its own.
  void leave_gradient_to_others(std::size_t number);

  /// Moves `.grad` to the store, unless it is there.
  void bring_home(std::size_t number);

  void zero_grad();

  /// After a pass that was accumulated.
  void note_accumulated(const std::shared_ptr<const AccumulatedPass>& pass);

  /// After one that failed, once gradients were looked at: forgets all. Those of earlier steps are `.grad` again.
  void forget_accumulated();

  /// After somebody has written the values: graphs that were computed with others can no longer go backwards.
  void note_new_values() {
    for (const Parameter& each : parameters) note_change(each.tensor);
  }

  /// The number of the last pass that counts for no parameter, if doubts are settled so.
  std::uint64_t forgotten(Accumulated Parameter::*doubt) const;

  /// From the next pass on, all of its gradient travels. On every rank.
  void make_dense(std::size_t table) {
    parameters[table].is_table = false;
    trains_.clear();
  }

  /// Gradients are there.
  std::vector<std::size_t> present() const;

  /// A tensor for `view` of the store's memory, which is `variable`'s; keeps it alive.
  at::Tensor tensor_of(const TensorView& view, const Variable& variable) const;

  VariableStore& store;
  int replicas;       ///< of the strategy
  std::string label;  ///< "critic (Net)"
  ModuleParts parts;
  std::unique_ptr<TorchDevice> device;
  std::vector<Parameter> parameters;
  std::vector<ModuleBuffer> buffers;
  std::shared_ptr<lockstep::detail::ExternalValues> external_values;  ///< the store asks it as long as this lives

  std::vector<std::size_t> trained;         ///< parameters that are not frozen, other than tables
  std::vector<std::size_t> tables;          ///< that are not frozen
  lockstep::detail::GradientPieces pieces;  ///< of `trained`
  std::vector<at::Tensor> flat;             ///< the ranges of `pieces`
  std::string text;                         ///< what the ranks compare
  std::vector<std::shared_ptr<const Subtrees::Memory>> subtree_memory;  ///< of the ranges of the last step that took it

  std::vector<std::shared_ptr<const AccumulatedPass>> accumulated;
  std::vector<EarlierGradient> earlier;                            ///< to be added
  std::unique_ptr<const lockstep::detail::UpdateKernels> kernels;  ///< made when they are needed

  const std::optional<std::int64_t> audit_every;
  const std::uint64_t audit_seed;
  std::int64_t steps_in_shards = 0;  ///< for which these held

  std::int64_t passes = 0;  ///< that autograd has made
  bool fires_once = true;   ///< each pass so far has completed each gradient once at most

 private:
  /// Where `tensor`, the value of `variable`, has its place.
  at::Tensor home_of(const MirroredVariable& variable, const at::Tensor& tensor) const;

  void set_hook(std::size_t number);
  void require_known() const;
  void update_trained();
  std::vector<at::Tensor> touched_gradients() const;
  void show_earlier();
  void show_zeros();
  void on_gradient(std::size_t number);

  std::unordered_set<const c10::TensorImpl*> known_;  ///< parameters and buffers
  std::vector<char> trains_;                          ///< by parameter: not frozen
  DeviceFlags left_;                                  ///< after an accumulated pass: by parameter with a gradient
  std::mutex mutex_;                                  ///< hooks may run on autograd's threads
  Pass* pass_ = nullptr;
  bool is_busy_ = false;
};

/// Of a parameter or a buffer of a replicated module that is alive.
struct TensorOwner {
  ReplicatedModule::Impl* module;
  std::string label;                          ///< "parameter 'critic.w'"
  std::optional<std::size_t> parameter = {};  ///< its number; empty for a buffer
};

/// Null for any other tensor.
std::optional<TensorOwner> owner_of(const at::Tensor& tensor);

/// The replicated modules of a strategy that are alive, in the order of creation.
std::vector<ReplicatedModule::Impl*> modules_of(const VariableStore& store);

/// InvalidArgument unless `now` is like `home`: "`what` has become f32[2]; expected f64[2], `remedy`".
void require_like(std::string_view what, const at::Tensor& now, const at::Tensor& home, std::string_view remedy);

/// InvalidArgument, which names both, if an element of one of these tensors is also an element of another one, or of a
/// parameter or buffer of `others`. Tensors that lie between each other's elements are free. One tensor under two names
/// among the parameters, or among the buffers, is in its list once.
void require_own_memory(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::vector<ReplicatedModule::Impl*>& others);

/// The values of `module`, for its store. The module must outlive them.
std::shared_ptr<lockstep::detail::ExternalValues> make_module_values(ReplicatedModule::Impl& module);

/// "f32" of torch; nothing for types that variables cannot have.
std::optional<DType> dtype_of(at::ScalarType type);
at::ScalarType type_of(DType dtype);

/// In place.
void divide(at::Tensor& gradient, double divisor);

/// The elements of a contiguous tensor in memory of that kind.
TensorView view_of(const at::Tensor& tensor, DeviceKind kind = DeviceKind::cpu);

}  // namespace lockstep::libtorch

template <>
struct lockstep::detail::Inside<lockstep::libtorch::ReplicatedModule> {
  const libtorch::ReplicatedModule& module;

  libtorch::ReplicatedModule::Impl& impl() const { return *module.impl_; }
};

namespace lockstep::libtorch {

inline lockstep::detail::Inside<ReplicatedModule> inside(const ReplicatedModule& module) {
  return {module};
}

}  // namespace lockstep::libtorch
