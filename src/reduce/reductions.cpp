#include "reduce/reductions.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "base/element_type.hpp"
#include "control/busy_clock.hpp"
#include "control/job.hpp"
#include "reduce/dispatch.hpp"
#include "reduce/plane.hpp"
#include "reduce/reduction_choice.hpp"

namespace lockstep {
namespace {

/// Of a tensor, a view of one, rows or a message in slices.
template <class Operand>
DeviceKind device_of(const Operand& operand) {
  if constexpr (requires { operand.device(); })
    return operand.device();
  else if constexpr (requires { operand.memory; })
    return operand.memory.device();
  else
    return operand.values.device();
}

template <class T>
bool has_any_on_gpu(std::span<T> all) {
  return std::ranges::any_of(all, [](const T& each) { return device_of(each) == DeviceKind::cuda; });
}

/// Calls `body(device, some)` for the operands on each device. What it replaces goes back to `all`.
template <class T, class Body>
void for_each_device(std::span<T> all, Body&& body) {
  for (const DeviceKind device : {DeviceKind::cpu, DeviceKind::cuda}) {
    std::vector<std::remove_const_t<T>> some;
    for (const T& each : all)
      if (device_of(each) == device) some.push_back(each);
    if (some.empty()) continue;
    body(device, std::span<T>{some});
    if constexpr (!std::is_const_v<T>) {
      auto next = some.begin();
      for (T& each : all)
        if (device_of(each) == device) each = std::move(*next++);
    }
  }
}

}  // namespace

void require_reducible(ReduceOp op, DType dtype) {
  if (op != ReduceOp::sum && op != ReduceOp::mean)
    throw InvalidArgument{
        fmt::format("`reduce_op` must be ReduceOp::sum or ReduceOp::mean, not {}", static_cast<int>(op))};
  with_element_type(dtype, []<class T>() {});
  if (op == ReduceOp::mean && !is_floating_point(dtype))
    throw InvalidArgument{fmt::format(
        "the mean of {} tensors is refused: it is not an integer; sum them, or convert them to f64", name_of(dtype))};
}

/// A sum that was started, and moves on and ends through the seam.
class Reductions::Started final : public Work::Pending {
 public:
  Started(Reductions& reductions, DeviceKind device, Work work)
      : reductions_{reductions}, device_{device}, work_{std::move(work)} {}

  void wait() override {
    reductions_.wait_through_seam(device_, [&] { work_.wait(); });
  }
  bool advance() override {
    bool done = false;
    reductions_.through_seam(DeviceKind::cpu, [&] { done = work_.advance(); });
    return done;
  }
  Work::Traffic traffic() const override { return work_.traffic(); }

 private:
  Reductions& reductions_;
  DeviceKind device_;
  Work work_;
};

Reductions::Reductions(const Planes& planes, const ReductionOptions& options, std::span<const int> node_of_rank,
                       Seam seam, std::uint64_t number, Job* job)
    : seam_{std::move(seam)}, job_{job}, begins_at_wait_{options.around != nullptr} {
  require_valid(options);
  host_ = std::make_unique<Plane>(planes.host, options, node_of_rank, number);
  if (planes.device) device_ = std::make_unique<Plane>(*planes.device, options, node_of_rank, number);
}

Reductions::~Reductions() = default;

std::string Reductions::name() const {
  return of_variables().name();
}
const Packing& Reductions::packing() const {
  return of_variables().packing();
}
std::int64_t Reductions::enough_bytes() const {
  return of_variables().enough_bytes();
}
std::optional<DType> Reductions::gradient_compression() const {
  return of_variables().gradient_compression();
}
detail::Way Reductions::way_of_sum(std::int64_t bytes, DType dtype) const {
  return of_variables().way_of_sum(bytes, dtype);
}
std::vector<int> Reductions::slice_owners() const {
  return of_variables().slice_owners();
}
SharedAllocation Reductions::allocate_shared(std::size_t bytes) {
  return device_ ? SharedAllocation{} : host_->allocate_shared(bytes);
}

// What goes through the seam: a whole collective, or the start, each advance and the wait of one.

template <class Part>
void Reductions::through_seam(DeviceKind device, Part&& part) {
  const auto inside = [&] { seam_ ? seam_(device, std::ref(part)) : part(); };
  job_ ? job_->see_through(inside) : inside();
}

template <class Part>
void Reductions::wait_through_seam(DeviceKind device, Part&& part) {
  const BusyClock::Waiting waiting;
  through_seam(device, part);
}

void Reductions::run(const detail::Request& request) {
  const bool on_gpu = device_ && (has_any_on_gpu(request.tensors) || has_any_on_gpu(request.slices) ||
                                  has_any_on_gpu(request.rows) || has_any_on_gpu(request.to_gather));
  wait_through_seam(on_gpu ? DeviceKind::cuda : DeviceKind::cpu, [&] { run_by_device(request); });
}

void Reductions::run_by_device(const detail::Request& request) {
  if (!device_) return host_->run(request);
  const auto run_those = [&](auto operands) {
    for_each_device(request.*operands, [&](DeviceKind device, auto some) {
      detail::Request part = request;
      part.*operands = some;
      plane_of(device).run(part);
    });
  };
  run_those(&detail::Request::tensors);
  run_those(&detail::Request::slices);
  run_those(&detail::Request::rows);
  run_those(&detail::Request::to_gather);
}

Work Reductions::start_guarded(DeviceKind device, std::function<Work()> begin) {
  if (begins_at_wait_)
    return Work::later(
        [this, device, begin = std::move(begin)] { wait_through_seam(device, [&] { begin().wait(); }); });
  Work started = Work::done();
  through_seam(device, [&] { started = begin(); });
  return Work{std::make_unique<Started>(*this, device, std::move(started))};
}

Work Reductions::start(const TensorView& message) {
  return start_guarded(message.device(), [this, message] {
    return plane_of(message.device()).start({.kind = detail::Request::Kind::all_reduce, .tensors = {&message, 1}});
  });
}

Work Reductions::start_scatter(const Sliced& message) {
  return start_guarded(device_of(message), [this, message] {
    return plane_of(device_of(message)).start({.kind = detail::Request::Kind::to_owners, .slices = {&message, 1}});
  });
}

Work Reductions::start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) {
  const DeviceKind device = has_any_on_gpu(tensors) ? DeviceKind::cuda : DeviceKind::cpu;
  return start_guarded(device, [this, op, all = std::vector(tensors.begin(), tensors.end())] {
    std::vector<Work> started;
    for_each_device(std::span<const TensorView>{all}, [&](DeviceKind each, std::span<const TensorView> some) {
      started.push_back(plane_of(each).start_sums(op, some));
    });
    return detail::all_of(std::move(started));
  });
}

// The names of requests.

void Reductions::all_reduce(ReduceOp op, std::span<const TensorView> tensors) {
  run({.kind = detail::Request::Kind::all_reduce, .op = op, .tensors = tensors});
}
void Reductions::reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) {
  run({.kind = detail::Request::Kind::reduce, .op = op, .tensors = tensors, .root = root});
}
void Reductions::broadcast(std::span<const TensorView> tensors, int root) {
  run({.kind = detail::Request::Kind::broadcast, .tensors = tensors, .root = root});
}
void Reductions::gather_slices(std::span<const Sliced> messages) {
  run({.kind = detail::Request::Kind::to_all, .slices = messages});
}
void Reductions::all_reduce(ReduceOp op, std::span<IndexedSlices> slices) {
  run({.kind = detail::Request::Kind::all_reduce, .op = op, .rows = slices});
}
void Reductions::reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) {
  run({.kind = detail::Request::Kind::reduce, .op = op, .rows = slices, .root = root});
}
void Reductions::broadcast(std::span<IndexedSlices> slices, int root) {
  run({.kind = detail::Request::Kind::broadcast, .rows = slices, .root = root});
}
void Reductions::all_gather(std::span<Tensor> tensors) {
  run({.kind = detail::Request::Kind::all_gather, .to_gather = tensors});
}

}  // namespace lockstep
