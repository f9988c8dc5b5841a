// What a group does while its program goes on: the requests of Group.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/group/group.hpp>

#include "core/base/element_type.hpp"
#include "core/comm/exchange_queue.hpp"
#include "core/comm/messenger.hpp"
#include "core/order/shares.hpp"
#include "core/tensor/convert.hpp"
#include "sync/group/host_copies.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/group/request_queue.hpp"
#include "sync/group/rows_under_way.hpp"
#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/operand_text.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

using Plane = RequestQueue::Plane;

void require_rank(const Group& group, int rank, std::string_view role) {
  if (rank < 0 || rank >= group.size())
    throw InvalidArgument{fmt::format("{} {}: expected one of 0 to {}", role, rank, group.size() - 1)};
}

void require_sum(const TensorView& values, const Group::SumOptions& options) {
  if (options.shards < 0)
    throw InvalidArgument{fmt::format("a sum over {} shards: expected 0 or more", options.shards)};
  if (options.op == ReduceOp::exact_sum) {
    require_exact(values);
    if (options.wire)
      throw InvalidArgument{fmt::format("an exact sum sent as {}: expected no wire type", name_of(*options.wire))};
    if (options.shards > 0)
      throw InvalidArgument{fmt::format("an exact sum over {} shards: expected no shards", options.shards)};
    return;
  }
  if (options.op != ReduceOp::sum)
    throw InvalidArgument{
        fmt::format("a request for the {} of {}: expected sum or exact_sum", name_of(options.op), describe(values))};
  require_reducible(ReduceOp::sum, values.dtype());
  if (options.wire && (!is_16_bit_float(*options.wire) || values.dtype() != DType::f32))
    throw InvalidArgument{
        fmt::format("{} sent as {}: expected f32 sent as f16 or bf16", describe(values), name_of(*options.wire))};
}

/// "sum of f32[3], over 8 shards"
std::string sum_text(const TensorView& values, const Group::SumOptions& options) {
  return fmt::format("{} of {}{}", name_of(options.op), describe(values),
                     options.shards > 0 ? fmt::format(", over {} shards", options.shards) : "");
}

/// Whether `all` has a block like `one` for each of `ranks`.
bool are_blocks(const TensorView& one, const TensorView& all, int ranks) {
  return one.dtype() == all.dtype() && one.count() * ranks == all.count();
}

void require_blocks(bool fit, std::string_view method, const TensorView& sent, const TensorView& received, int ranks) {
  if (!fit)
    throw InvalidArgument{
        fmt::format("{} of {} into {}: expected a block for each of {} ranks, all of one length and type", method,
                    describe(sent), describe(received), ranks)};
}

void require_rows(const Tensor& rows, std::string_view method) {
  if (rows.shape().empty())
    throw InvalidArgument{fmt::format("{} of the rows of {}: expected a dimension", method, describe(rows.view()))};
}

void require_counts(const Tensor& rows, std::span<const std::int64_t> counts, int ranks) {
  const bool fit = std::ranges::ssize(counts) == ranks && std::ranges::all_of(counts, [](auto n) { return n >= 0; }) &&
                   std::reduce(counts.begin(), counts.end()) == rows.shape()[0];
  if (!fit)
    throw InvalidArgument{
        fmt::format("all_to_all of the rows of {}, cut into {}: expected a number for each of {} "
                    "ranks, together all rows",
                    describe(rows.view()), fmt::join(counts, " + "), ranks)};
}

/// What is done when the message is.
template <class Message>
std::function<bool()> is_done(std::shared_ptr<const Message> message) {
  return [message = std::move(message)] { return message->is_done(); };
}

const std::function<bool()> nothing_to_wait_for = [] { return true; };

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
std::string block_text(const TensorView& block) {
  return fmt::format("{} {}", block.count(), name_of(block.dtype()));
}

/// What a rank sends to itself, unless it is in its place.
void copy_own(const Parcel& own) {
  if (!own.sent.empty() && !own.received.empty() && own.sent.data() != own.received.data())
    std::memcpy(own.received.data(), own.sent.data(), own.sent.size());
}

using Use = detail::HostCopies::Use;

/// What a rank does to values that `sends` or `receives` says it moves.
Use use_of(bool sends, bool receives) {
  return sends ? (receives ? Use::both : Use::sends) : (receives ? Use::receives : Use::none);
}

}  // namespace

struct Group::Request::State : std::enable_shared_from_this<State> {
  State(const Group& its_group, const Here& its_here)
      : of{its_group}, here{its_here}, copies{its_group.group_->stream(), its_group.group_->pinned()} {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    try {
      // One that was waited for asks nothing of its group, which may be gone with its runtime.
      if (request && !is_over && !test()) wait();
    } catch (...) {
      // A verdict, of which all ranks know; or the end of the job, of which this rank has been told.
      if (!request->is_done()) queue().abandon();
    }
  }

  RequestQueue& queue() const { return of.group_->requests(); }

  bool test() {
    if (!queue().test(*request)) return false;
    copies.put_back();
    is_over = true;
    return true;
  }

  /// A GPU that hangs before it has given its values is this rank's own.
  void wait(const std::function<void()>& meanwhile = {}) {
    if (!request->is_done()) copies.wait();
    queue().wait(*request, meanwhile);
    copies.put_back();
    is_over = true;
  }

  /// `text` is what the ranks compare: "all_reduce: sum of f32[3]".
  Request submit(const std::string& text, RequestQueue::Start start) {
    request = queue().submit(
        of.call(text, here), [this] { return copies.have_come(); }, std::move(start));
    return Request{shared_from_this()};
  }

  detail::SumRule rule_of(const SumOptions& options) {
    if (options.shards > 0) additions = Shares{options.shards, of.size()}.additions();
    return {.is_exact = options.op == ReduceOp::exact_sum, .additions = additions};
  }

  /// A sum of `values`, of which this rank gets `result`, which may be `values` itself; both are on the host.
  /// `start_on(sums, values, result)` starts it on a way of Plane::sums.
  template <class StartOn>
  Request sum(const std::string& text, const std::optional<DType>& wire, const TensorView& values,
              const TensorView& result, StartOn start_on) {
    const auto start = [start_on](Plane& plane, const TensorView& from, const TensorView& to) {
      return std::visit([&](auto& sums) { return is_done(start_on(sums, from, to)); }, plane.sums);
    };
    const auto alone = [=] {
      copy_own({bytes_of(values), bytes_of(result)});
      return nothing_to_wait_for;
    };
    if (!wire) return submit(text, [=](Plane* plane) { return plane ? start(*plane, values, result) : alone(); });
    return submit(fmt::format("{}, sent as {}", text, name_of(*wire)), [=](Plane* plane) -> std::function<bool()> {
      if (!plane) return alone();
      const auto like = [&](const TensorView& view) { return Tensor::uninitialised(*wire, view.shape()); };
      const Tensor sent = like(values), summed = result.data() == values.data() ? sent : like(result);
      detail::convert(values, sent.view());
      // The memory of what is sent is kept, too.
      return [sent, summed, result, is_summed = start(*plane, sent.view(), summed.view())] {
        if (!is_summed()) return false;
        detail::convert(summed.view(), result);
        return true;
      };
    });
  }

  /// `with(r)` is the parcel between this rank and rank r, which may be itself. No parcel of any rank has more than
  /// `longest` bytes.
  template <class With>
  Request exchange(const std::string& text, std::size_t longest, const With& with) {
    std::vector<Parcel> parcels;
    for (int rank = 0; rank < of.size(); ++rank) parcels.push_back(with(rank));
    const Parcel own = parcels[static_cast<std::size_t>(of.rank())];
    return submit(text, [parcels = std::move(parcels), own, longest](Plane* plane) {
      copy_own(own);
      return plane ? is_done(plane->exchanges.start({parcels, longest})) : nothing_to_wait_for;
    });
  }

  /// `start(exchanges)` starts an exchange of rows.
  template <class StartRows>
  Request exchange_rows(const std::string& text, StartRows start) {
    return submit(text, [start](Plane* plane) { return plane ? start(plane->exchanges) : nothing_to_wait_for; });
  }

  Group of;
  Here here;
  detail::HostCopies copies;
  std::vector<std::uint8_t> additions = {};        ///< of a sum over shards
  std::shared_ptr<RequestQueue::Request> request;  ///< null before it is submitted
  std::atomic<bool> is_over = false;               ///< and its values are where they belong
};

bool Group::Request::test() {
  return state_->test();
}

void Group::Request::wait() {
  state_->wait();
}

void Group::Request::wait(const std::function<void()>& meanwhile) {
  state_->wait(meanwhile);
}

Group::Request Group::submit_all_reduce(const TensorView& values, const SumOptions& options, Here here) {
  require_sum(values, options);
  const auto state = std::make_shared<Request::State>(*this, here);
  const detail::SumRule rule = state->rule_of(options);
  const TensorView all = state->copies.of(values, Use::both);
  return state->sum("all_reduce: " + sum_text(all, options), options.wire, all, all,
                    [rule](auto& sums, const TensorView& from, const TensorView&) { return sums.start(from, rule); });
}

Group::Request Group::submit_reduce(const TensorView& values, int root, const SumOptions& options, Here here) {
  require_rank(*this, root, "submit_reduce with root");
  require_sum(values, options);
  const auto state = std::make_shared<Request::State>(*this, here);
  const detail::SumRule rule = state->rule_of(options);
  const TensorView all = state->copies.of(values, use_of(true, rank() == root));
  return state->sum(fmt::format("reduce: {} on rank {}", sum_text(all, options), root), options.wire, all, all,
                    [rule, root](auto& sums, const TensorView& from, const TensorView&) {
                      return sums.start_to_one(from, rule, root);
                    });
}

Group::Request Group::submit_reduce_scatter(const TensorView& all, const TensorView& mine, const SumOptions& options,
                                            Here here) {
  require_blocks(are_blocks(mine, all, size()), "reduce_scatter", all, mine, size());
  require_sum(all, options);
  std::vector<std::int64_t> bounds;
  for (int rank = 0; rank <= size(); ++rank) bounds.push_back(rank * mine.count());
  const auto state = std::make_shared<Request::State>(*this, here);
  const detail::SumRule rule = state->rule_of(options);
  return state->sum("reduce_scatter: " + sum_text(all, options), options.wire, state->copies.of(all, Use::sends),
                    state->copies.of(mine, Use::receives),
                    [rule, bounds](auto& sums, const TensorView& from, const TensorView& to) {
                      return sums.start_scatter(from, bounds, to, rule);
                    });
}

Group::Request Group::submit_broadcast(const TensorView& values, int root, Here here) {
  require_rank(*this, root, "submit_broadcast with root");
  const auto state = std::make_shared<Request::State>(*this, here);
  const bool is_root = rank() == root;
  const TensorView all = state->copies.of(values, use_of(is_root, !is_root));
  return state->exchange(fmt::format("broadcast: {} from rank {}", describe(all), root), all.bytes(),
                         [&](int other) -> Parcel {
                           return {bytes_if(is_root, all), bytes_if(other == root, all)};
                         });
}

Group::Request Group::submit_send(const TensorView& values, int from, int to, Here here) {
  require_rank(*this, from, "submit_send from rank");
  require_rank(*this, to, "submit_send to rank");
  const auto state = std::make_shared<Request::State>(*this, here);
  const TensorView moved = state->copies.of(values, use_of(rank() == from, rank() == to && from != to));
  return state->exchange(
      fmt::format("send: {} from rank {} to rank {}", describe(moved), from, to), moved.bytes(),
      [&](int other) -> Parcel {
        return {bytes_if(rank() == from && other == to, moved), bytes_if(rank() == to && other == from, moved)};
      });
}

Group::Request Group::submit_all_gather(const TensorView& mine, const TensorView& all, Here here) {
  require_blocks(are_blocks(mine, all, size()), "all_gather", mine, all, size());
  const auto state = std::make_shared<Request::State>(*this, here);
  const TensorView sent = state->copies.of(mine, Use::sends), got = state->copies.of(all, Use::receives);
  return state->exchange("all_gather: " + block_text(mine), sent.bytes(), [&](int other) -> Parcel {
    return {bytes_of(sent), block_of(got, other, size())};
  });
}

Group::Request Group::submit_gather(const TensorView& mine, const TensorView& all, int root, Here here) {
  require_rank(*this, root, "gather with root");
  require_blocks(rank() != root || are_blocks(mine, all, size()), "gather", mine, all, size());
  const auto state = std::make_shared<Request::State>(*this, here);
  const TensorView sent = state->copies.of(mine, Use::sends);
  const TensorView got = rank() == root ? state->copies.of(all, Use::receives) : TensorView{};
  return state->exchange(fmt::format("gather: {}, rank {}'s", block_text(mine), root), sent.bytes(),
                         [&](int other) -> Parcel {
                           return {bytes_if(other == root, sent), block_of(got, other, size())};
                         });
}

Group::Request Group::submit_scatter(const TensorView& all, const TensorView& mine, int root, Here here) {
  require_rank(*this, root, "scatter with root");
  require_blocks(rank() != root || are_blocks(mine, all, size()), "scatter", all, mine, size());
  const auto state = std::make_shared<Request::State>(*this, here);
  const TensorView sent = rank() == root ? state->copies.of(all, Use::sends) : TensorView{};
  const TensorView got = state->copies.of(mine, Use::receives);
  return state->exchange(fmt::format("scatter: {}, rank {}'s", block_text(mine), root), got.bytes(),
                         [&](int other) -> Parcel {
                           return {block_of(sent, other, size()), bytes_if(other == root, got)};
                         });
}

Group::Request Group::submit_all_to_all(const TensorView& sent, const TensorView& received, Here here) {
  const TensorView block{nullptr, {sent.count() / size()}, sent.dtype()};
  const bool fit = are_blocks(sent, received, 1) && are_blocks(block, sent, size());
  require_blocks(fit, "all_to_all", sent, received, size());
  const auto state = std::make_shared<Request::State>(*this, here);
  const TensorView from = state->copies.of(sent, Use::sends), to = state->copies.of(received, Use::receives);
  return state->exchange("all_to_all: " + block_text(block), block.bytes(), [&](int other) -> Parcel {
    return {block_of(from, other, size()), block_of(to, other, size())};
  });
}

Group::Request Group::submit_barrier(Here here) {
  // Agreed is done: all ranks have come.
  return std::make_shared<Request::State>(*this, here)->submit("barrier", [](Plane*) { return nothing_to_wait_for; });
}

Group::Request Group::submit_all_reduce(IndexedSlices& rows, Here here) {
  require_reducible(ReduceOp::sum, rows);
  const auto state = std::make_shared<Request::State>(*this, here);
  Tensor& values = state->copies.of(rows.values, Use::both);
  Tensor& indices = state->copies.of(rows.indices, Use::both);
  const std::string text = fmt::format("all_reduce: sum of {}", operand_text({values, indices, rows.dense_shape}));
  return state->exchange_rows(text, [&values, &indices, rank = rank(), ranks = size()](ExchangeQueue& exchanges) {
    return detail::gather_rows(exchanges, {&values, &indices}, rank, ranks);
  });
}

Group::Request Group::submit_all_gather(Tensor& rows, Here here) {
  require_rows(rows, "all_gather");
  const auto state = std::make_shared<Request::State>(*this, here);
  Tensor& all = state->copies.of(rows, Use::both);
  const std::string text = "all_gather: " + rows_text(std::span{&all, 1});
  return state->exchange_rows(text, [&all, rank = rank(), ranks = size()](ExchangeQueue& exchanges) {
    return detail::gather_rows(exchanges, {&all}, rank, ranks);
  });
}

Group::Request Group::submit_all_to_all(Tensor& rows, std::span<std::int64_t> counts, Here here) {
  require_rows(rows, "all_to_all");
  require_counts(rows, counts, size());
  const auto state = std::make_shared<Request::State>(*this, here);
  Tensor& all = state->copies.of(rows, Use::both);
  const std::string text = "all_to_all: " + rows_text(std::span{&all, 1});
  return state->submit(text, [&all, counts, rank = rank(), ranks = size()](Plane* plane) {
    return plane ? detail::swap_rows(plane->exchanges, all, counts, rank, ranks) : nothing_to_wait_for;
  });
}

Group::Request Group::submit_send(Tensor& rows, int from, int to, Here here) {
  require_rows(rows, "send");
  require_rank(*this, from, "submit_send from rank");
  require_rank(*this, to, "submit_send to rank");
  const auto state = std::make_shared<Request::State>(*this, here);
  Tensor& moved = state->copies.of(rows, use_of(rank() == from, rank() == to && from != to));
  const std::string text = fmt::format("send: {} from rank {} to rank {}", rows_text(std::span{&moved, 1}), from, to);
  return state->exchange_rows(text, [&moved, rank = rank(), ranks = size(), from, to](ExchangeQueue& exchanges) {
    return detail::send_rows(exchanges, moved, rank, ranks, from, to);
  });
}

}  // namespace lockstep
