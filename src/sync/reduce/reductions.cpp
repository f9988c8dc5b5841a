#include "sync/reduce/reductions.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_type.hpp"
#include "core/control/busy_clock.hpp"
#include "core/control/job.hpp"
#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/operand_text.hpp"
#include "sync/reduce/plane.hpp"
#include "sync/reduce/reduction_choice.hpp"

namespace lockstep {
namespace {

using detail::ReductionPlane;
using detail::Request;

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

/// A GPU if one of them is there.
template <class T>
DeviceKind device_of_any(std::span<T> all) {
  const auto is_on_gpu = [](const T& each) { return device_of(each) == DeviceKind::cuda; };
  return std::ranges::any_of(all, is_on_gpu) ? DeviceKind::cuda : DeviceKind::cpu;
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
  if (op == ReduceOp::exact_sum)
    throw InvalidArgument{"`reduce_op` ReduceOp::exact_sum: only the sums of a Group are exact; expected sum or mean"};
  if (op != ReduceOp::sum && op != ReduceOp::mean)
    throw InvalidArgument{
        fmt::format("`reduce_op` must be ReduceOp::sum or ReduceOp::mean, not {}", static_cast<int>(op))};
  with_element_type(dtype, []<class T>() {});
  if (op == ReduceOp::mean && !is_floating_point(dtype))
    throw InvalidArgument{fmt::format(
        "the mean of {} tensors is refused: it is not an integer; sum them, or convert them to f64", name_of(dtype))};
}

void require_exact(const TensorView& values) {
  if ((values.dtype() != DType::f32 && values.dtype() != DType::f64) || values.device() != DeviceKind::cpu)
    throw InvalidArgument{
        fmt::format("the exact sum of {}: expected f32 or f64 in the host's memory", operand_text(values))};
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
  host_ = std::make_unique<ReductionPlane>(planes.host, options, node_of_rank, number);
  if (planes.device) device_ = std::make_unique<ReductionPlane>(*planes.device, options, node_of_rank, number);
  choice_ = of_variables().choice();
}

Reductions::~Reductions() = default;

detail::Way Reductions::way_of_sum(std::int64_t bytes, DType dtype) const {
  return of_variables().way_of_sum(bytes, dtype);
}

int Reductions::subtrees_sent(const Shares& shares) const {
  return of_variables().subtrees_sent(shares);
}

const Shares& Reductions::shares(int shards, int ranks, bool has_threads) {
  const std::array key{shards, ranks, static_cast<int>(has_threads)};
  if (const auto found = found_.find(key); found != found_.end()) return found->second;
  const bool may_have_several = choice_.takes_subtrees && !has_threads;
  return found_.emplace(key, may_have_several ? Shares::even(shards, ranks) : Shares{shards, ranks}).first->second;
}

SharedAllocation Reductions::allocate_shared(std::size_t bytes) {
  return device_ ? SharedAllocation{} : host_->allocate_shared(bytes);
}

// What goes through the seam: a whole collective, or the start, each advance and the wait of one.

template <class Part>
void Reductions::through_seam(DeviceKind device, Part&& part) {
  const auto inside = [&] { seam_ ? seam_(device, std::ref(part)) : part(); };
  job_ ? job_->complete_or_abort(inside) : inside();
}

template <class Part>
void Reductions::wait_through_seam(DeviceKind device, Part&& part) {
  const BusyClock::Waiting waiting;
  through_seam(device, part);
}

template <class Operand>
void Reductions::run(Request request, std::span<Operand> Request::*operands) {
  const std::span<Operand> all = request.*operands;
  wait_through_seam(device_ ? device_of_any(all) : DeviceKind::cpu, [&] {
    if (!device_) return host_->run(request);
    for_each_device(all, [&](DeviceKind device, std::span<Operand> some) {
      request.*operands = some;
      plane_of(device).run(request);
    });
  });
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
  return start_guarded(message.device(), [this, message, shards = shards_, subtrees = subtrees_] {
    return plane_of(message.device())
        .start({.kind = Request::Kind::all_reduce, .tensors = {&message, 1}, .shards = shards, .subtrees = subtrees});
  });
}

Work Reductions::start_scatter(const Sliced& message) {
  return start_guarded(device_of(message), [this, message, shards = shards_, subtrees = subtrees_] {
    return plane_of(device_of(message))
        .start({.kind = Request::Kind::to_owners, .slices = {&message, 1}, .shards = shards, .subtrees = subtrees});
  });
}

Work Reductions::start_all_reduce(ReduceOp op, std::span<const TensorView> tensors) {
  const auto begin = [this, op, shards = shards_, all = std::vector(tensors.begin(), tensors.end())] {
    std::vector<Work> started;
    for_each_device(std::span<const TensorView>{all}, [&](DeviceKind device, std::span<const TensorView> some) {
      started.push_back(plane_of(device).start_sums(
          {.kind = Request::Kind::all_reduce, .op = op, .tensors = some, .shards = shards}));
    });
    return detail::all_of(std::move(started));
  };
  return start_guarded(device_of_any(tensors), begin);
}

// The names of requests.

void Reductions::all_reduce(ReduceOp op, std::span<const TensorView> tensors) {
  run({.kind = Request::Kind::all_reduce, .op = op, .tensors = tensors, .shards = shards_}, &Request::tensors);
}
void Reductions::sum_up(const TensorView& sum, std::span<const TensorView> others) {
  if (!subtrees_) return all_reduce(ReduceOp::sum, {&sum, 1});
  std::vector<TensorView> parts{others.begin(), others.end()};
  parts.push_back(sum);
  PlacedSum::make(*subtrees_, parts, sum, [this](const TensorView& integers) {
    all_reduce(ReduceOp::sum, {&integers, 1});
  });
}
void Reductions::reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) {
  run({.kind = Request::Kind::reduce, .op = op, .tensors = tensors, .root = root, .shards = shards_},
      &Request::tensors);
}
void Reductions::broadcast(std::span<const TensorView> tensors, int root) {
  run({.kind = Request::Kind::broadcast, .tensors = tensors, .root = root}, &Request::tensors);
}
void Reductions::gather_slices(std::span<const Sliced> messages) {
  run({.kind = Request::Kind::to_all, .slices = messages}, &Request::slices);
}
void Reductions::all_reduce(ReduceOp op, std::span<IndexedSlices> slices) {
  run({.kind = Request::Kind::all_reduce, .op = op, .rows = slices}, &Request::rows);
}
void Reductions::reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) {
  run({.kind = Request::Kind::reduce, .op = op, .rows = slices, .root = root}, &Request::rows);
}
void Reductions::broadcast(std::span<IndexedSlices> slices, int root) {
  run({.kind = Request::Kind::broadcast, .rows = slices, .root = root}, &Request::rows);
}
void Reductions::all_gather(std::span<Tensor> tensors) {
  run({.kind = Request::Kind::all_gather, .to_gather = tensors}, &Request::to_gather);
}

}  // namespace lockstep
