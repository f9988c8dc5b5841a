// What a group does while its program goes on: the requests of Group.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/group/group.hpp>

#include "base/element_type.hpp"
#include "comm/exchange_queue.hpp"
#include "comm/messenger.hpp"
#include "group/replica_group.hpp"
#include "group/request_queue.hpp"
#include "group/rows_under_way.hpp"
#include "reduce/dispatch.hpp"
#include "reduce/operand_text.hpp"
#include "reduce/reductions.hpp"
#include "tensor/convert.hpp"

namespace lockstep {
namespace {

using Plane = RequestQueue::Plane;

void require_on_host(const TensorView& tensor) {
  if (tensor.device() != DeviceKind::cpu)
    throw InvalidArgument{
        fmt::format("a request with {}, on a GPU: expected values in the host's memory", describe(tensor))};
}

void require_rank(const Group& group, int rank, std::string_view role) {
  if (rank < 0 || rank >= group.size())
    throw InvalidArgument{fmt::format("{} {}: expected one of 0 to {}", role, rank, group.size() - 1)};
}

void require_wire(DType wire, const TensorView& values) {
  if (!is_16_bit_float(wire) || values.dtype() != DType::f32)
    throw InvalidArgument{
        fmt::format("{} sent as {}: expected f32 sent as f16 or bf16", describe(values), name_of(wire))};
}

/// Whether `all` has a block like `one` for each of `ranks`.
bool are_blocks(const TensorView& one, const TensorView& all, int ranks) {
  return one.dtype() == all.dtype() && one.count() * ranks == all.count();
}

void require_blocks(bool fit, std::string_view method, const TensorView& sent, const TensorView& received, int ranks) {
  require_on_host(sent);
  require_on_host(received);
  if (!fit)
    throw InvalidArgument{
        fmt::format("{} of {} into {}: expected a block for each of {} ranks, all of one length and type", method,
                    describe(sent), describe(received), ranks)};
}

void require_rows(const Tensor& rows, std::string_view method) {
  require_on_host(rows.view());
  if (rows.shape().empty())
    throw InvalidArgument{fmt::format("{} of the rows of {}: expected a dimension", method, describe(rows.view()))};
}

/// What is done when the message is.
template <class Message>
std::function<bool()> is_done(std::shared_ptr<const Message> message) {
  return [message = std::move(message)] { return message->is_done(); };
}

std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {tensor.data(), tensor.bytes()};
}

std::span<std::byte> bytes_if(bool moves, const TensorView& tensor) {
  return moves ? bytes_of(tensor) : std::span<std::byte>{};
}

/// Block number `block` of `ranks` that `all` consists of.
std::span<std::byte> block_of(const TensorView& all, int block, int ranks) {
  const std::size_t bytes = all.bytes() / static_cast<std::size_t>(ranks);
  return bytes_of(all).subspan(static_cast<std::size_t>(block) * bytes, bytes);
}

/// "3 f32"
std::string block_text(std::int64_t count, DType dtype) {
  return fmt::format("{} {}", count, name_of(dtype));
}

/// What a rank sends to itself, unless it is in its place.
void copy_own(const Parcel& own) {
  if (!own.sent.empty() && !own.received.empty() && own.sent.data() != own.received.data())
    std::memcpy(own.received.data(), own.sent.data(), own.sent.size());
}

}  // namespace

struct Group::Request::State {
  explicit State(std::shared_ptr<ReplicaGroup> its_group) : group{std::move(its_group)} {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    try {
      if (request && !request->is_done()) group->requests().wait(*request);
    } catch (...) {
      // A verdict, of which all ranks know; or the end of the job, of which this rank has been told.
      if (!request->is_done()) group->requests().abandon();
    }
  }

  /// `text` is what the ranks compare: "all_reduce: sum of f32[3]".
  static Request submit(const Group& of, const std::string& text, const Here& here, RequestQueue::Start start) {
    auto state = std::make_shared<State>(of.group_);
    state->request = state->group->requests().submit(of.call(text, here), std::move(start));
    return Request{std::move(state)};
  }

  /// A sum of `values`, of which this rank gets `result`, which may be `values` itself. `start(plane, values, result)`
  /// starts it.
  template <class StartSum>
  static Request sum(const Group& of, const std::string& text, const Here& here, const SumOptions& options,
                     const TensorView& values, const TensorView& result, StartSum start) {
    require_on_host(values);
    require_on_host(result);
    require_reducible(ReduceOp::sum, values.dtype());
    if (!options.wire)
      return submit(of, text, here, [=](Plane& plane) { return is_done(start(plane, values, result)); });
    require_wire(*options.wire, values);
    return submit(of, fmt::format("{}, sent as {}", text, name_of(*options.wire)), here, [=](Plane& plane) {
      const auto like = [&](const TensorView& view) { return Tensor::uninitialised(*options.wire, view.shape()); };
      const Tensor sent = like(values), summed = result.data() == values.data() ? sent : like(result);
      detail::convert(values, sent.view());
      // The memory of what is sent is kept, too.
      return [sent, summed, result, message = start(plane, sent.view(), summed.view())] {
        if (!message->is_done()) return false;
        detail::convert(summed.view(), result);
        return true;
      };
    });
  }

  /// `with(r)` is the parcel between this rank and rank r, which may be itself. No parcel of any rank has more than
  /// `longest` bytes.
  template <class With>
  static Request exchange(const Group& of, const std::string& text, const Here& here, std::size_t longest,
                          const With& with) {
    std::vector<Parcel> parcels;
    for (int rank = 0; rank < of.size(); ++rank) parcels.push_back(with(rank));
    const Parcel own = parcels[static_cast<std::size_t>(of.rank())];
    if (of.size() == 1) copy_own(own);
    return submit(of, text, here, [parcels = std::move(parcels), own, longest](Plane& plane) {
      copy_own(own);
      return is_done(plane.exchanges.start({parcels, longest}));
    });
  }

  std::shared_ptr<ReplicaGroup> group;
  std::shared_ptr<RequestQueue::Request> request;
};

bool Group::Request::test() {
  return state_->group->requests().test(*state_->request);
}

void Group::Request::wait() {
  state_->group->requests().wait(*state_->request);
}

Group::Request Group::submit_all_reduce(const TensorView& values, const SumOptions& options, Here here) {
  const std::string text = fmt::format("all_reduce: sum of {}", operand_text(values));
  return Request::State::sum(
      *this, text, here, options, values, values,
      [](Plane& plane, const TensorView& all, const TensorView&) { return plane.sums.start(all); });
}

Group::Request Group::submit_reduce(const TensorView& values, int root, const SumOptions& options, Here here) {
  require_rank(*this, root, "submit_reduce with root");
  const std::string text = fmt::format("reduce: sum of {} on rank {}", operand_text(values), root);
  return Request::State::sum(
      *this, text, here, options, values, values,
      [root](Plane& plane, const TensorView& all, const TensorView&) { return plane.sums.start_to_one(all, 1, root); });
}

Group::Request Group::submit_reduce_scatter(const TensorView& all, const TensorView& mine, const SumOptions& options,
                                            Here here) {
  require_blocks(are_blocks(mine, all, size()), "reduce_scatter", all, mine, size());
  const std::string text = fmt::format("reduce_scatter: sum of {}", operand_text(all));
  std::vector<std::int64_t> bounds;
  for (int rank = 0; rank <= size(); ++rank) bounds.push_back(rank * mine.count());
  Request request = Request::State::sum(*this, text, here, options, all, mine,
                                        [bounds](Plane& plane, const TensorView& from, const TensorView& to) {
                                          return plane.sums.start_scatter(from, bounds, to);
                                        });
  if (size() == 1) copy_own({bytes_of(all), bytes_of(mine)});
  return request;
}

Group::Request Group::submit_broadcast(const TensorView& values, int root, Here here) {
  require_on_host(values);
  require_rank(*this, root, "submit_broadcast with root");
  const std::string text = fmt::format("broadcast: {} from rank {}", operand_text(values), root);
  return Request::State::exchange(*this, text, here, values.bytes(), [&](int other) -> Parcel {
    return {bytes_if(rank() == root, values), bytes_if(other == root, values)};
  });
}

Group::Request Group::submit_send(const TensorView& values, int from, int to, Here here) {
  require_on_host(values);
  require_rank(*this, from, "submit_send from rank");
  require_rank(*this, to, "submit_send to rank");
  const std::string text = fmt::format("send: {} from rank {} to rank {}", operand_text(values), from, to);
  return Request::State::exchange(*this, text, here, values.bytes(), [&](int other) -> Parcel {
    return {bytes_if(rank() == from && other == to, values), bytes_if(rank() == to && other == from, values)};
  });
}

Group::Request Group::submit_all_gather(const TensorView& mine, const TensorView& all, Here here) {
  require_blocks(are_blocks(mine, all, size()), "all_gather", mine, all, size());
  const std::string text = "all_gather: " + block_text(mine.count(), mine.dtype());
  return Request::State::exchange(*this, text, here, mine.bytes(), [&](int other) -> Parcel {
    return {bytes_of(mine), block_of(all, other, size())};
  });
}

Group::Request Group::submit_gather(const TensorView& mine, const TensorView& all, int root, Here here) {
  require_rank(*this, root, "gather with root");
  const TensorView there = rank() == root ? all : TensorView{};
  require_blocks(rank() != root || are_blocks(mine, all, size()), "gather", mine, all, size());
  const std::string text = fmt::format("gather: {}, rank {}'s", block_text(mine.count(), mine.dtype()), root);
  return Request::State::exchange(*this, text, here, mine.bytes(), [&](int other) -> Parcel {
    return {bytes_if(other == root, mine), block_of(there, other, size())};
  });
}

Group::Request Group::submit_scatter(const TensorView& all, const TensorView& mine, int root, Here here) {
  require_rank(*this, root, "scatter with root");
  const TensorView there = rank() == root ? all : TensorView{};
  require_blocks(rank() != root || are_blocks(mine, all, size()), "scatter", all, mine, size());
  const std::string text = fmt::format("scatter: {}, rank {}'s", block_text(mine.count(), mine.dtype()), root);
  return Request::State::exchange(*this, text, here, mine.bytes(), [&](int other) -> Parcel {
    return {block_of(there, other, size()), bytes_if(other == root, mine)};
  });
}

Group::Request Group::submit_all_to_all(const TensorView& sent, const TensorView& received, Here here) {
  const std::int64_t block = sent.count() / size();
  const bool fit = are_blocks(sent, received, 1) && block * size() == sent.count();
  require_blocks(fit, "all_to_all", sent, received, size());
  const std::string text = "all_to_all: " + block_text(block, sent.dtype());
  const std::size_t bytes = sent.bytes() / static_cast<std::size_t>(size());
  return Request::State::exchange(*this, text, here, bytes, [&](int other) -> Parcel {
    return {block_of(sent, other, size()), block_of(received, other, size())};
  });
}

Group::Request Group::submit_barrier(Here here) {
  return Request::State::exchange(*this, "barrier", here, 0, [](int) { return Parcel{}; });
}

Group::Request Group::submit_all_reduce(IndexedSlices& rows, Here here) {
  require_on_host(rows.values.view());
  require_reducible(ReduceOp::sum, rows);
  const std::string text = fmt::format("all_reduce: sum of {}", operand_text(rows));
  return Request::State::submit(*this, text, here, [&rows, rank = rank(), ranks = size()](Plane& plane) {
    return detail::gather_rows(plane.exchanges, {&rows.values, &rows.indices}, rank, ranks);
  });
}

Group::Request Group::submit_all_gather(Tensor& rows, Here here) {
  require_rows(rows, "all_gather");
  const std::string text = "all_gather: " + rows_text(std::span{&rows, 1});
  return Request::State::submit(*this, text, here, [&rows, rank = rank(), ranks = size()](Plane& plane) {
    return detail::gather_rows(plane.exchanges, {&rows}, rank, ranks);
  });
}

Group::Request Group::submit_send(Tensor& rows, int from, int to, Here here) {
  require_rows(rows, "send");
  require_rank(*this, from, "submit_send from rank");
  require_rank(*this, to, "submit_send to rank");
  const std::string text = fmt::format("send: {} from rank {} to rank {}", rows_text(std::span{&rows, 1}), from, to);
  return Request::State::submit(*this, text, here, [&rows, rank = rank(), ranks = size(), from, to](Plane& plane) {
    return detail::send_rows(plane.exchanges, rows, rank, ranks, from, to);
  });
}

}  // namespace lockstep
