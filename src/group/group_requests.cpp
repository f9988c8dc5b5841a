// What a group does while its program goes on: the requests of Group.
#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/group/group.hpp>

#include "base/element_type.hpp"
#include "comm/messenger.hpp"
#include "group/replica_group.hpp"
#include "group/request_queue.hpp"
#include "reduce/operand_text.hpp"
#include "reduce/reductions.hpp"

namespace lockstep {

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

  static Request submit(const Group& group, const std::string& text, const Here& here, RequestQueue::Start start) {
    auto state = std::make_shared<State>(group.group_);
    state->request = state->group->requests().submit(text, here, std::move(start));
    return Request{std::move(state)};
  }

  std::shared_ptr<ReplicaGroup> group;
  std::shared_ptr<RequestQueue::Request> request;
};

namespace {

using Plane = RequestQueue::Plane;

void require_on_host(const TensorView& tensor) {
  if (tensor.device() != DeviceKind::cpu)
    throw InvalidArgument{
        fmt::format("a request with {}, on a GPU: expected values in the host's memory", describe(tensor))};
}

void require_root(const Group& group, int root, const char* method) {
  if (root < 0 || root >= group.size())
    throw InvalidArgument{fmt::format("{} with root {}: expected one of 0 to {}", method, root, group.size() - 1)};
}

/// What is done when the message is.
template <class Message>
std::function<bool()> is_done(std::shared_ptr<const Message> message) {
  return [message = std::move(message)] { return message->is_done(); };
}

std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {tensor.data(), tensor.bytes()};
}

/// Block number `block` of `ranks` that `whole` consists of.
std::span<std::byte> block_of(const TensorView& whole, int block, int ranks) {
  const std::size_t bytes = whole.bytes() / static_cast<std::size_t>(ranks);
  return bytes_of(whole).subspan(static_cast<std::size_t>(block) * bytes, bytes);
}

/// What a rank sends to itself, if it receives something.
void copy_block(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!from.empty() && !to.empty()) std::memcpy(to.data(), from.data(), from.size());
}

}  // namespace

bool Group::Request::test() {
  return state_->group->requests().test(*state_->request);
}

void Group::Request::wait() {
  state_->group->requests().wait(*state_->request);
}

Group::Request Group::submit_all_reduce(const TensorView& values, Here here) {
  require_on_host(values);
  require_reducible(ReduceOp::sum, values.dtype());
  return Request::State::submit(*this, fmt::format("all_reduce: sum of {}", operand_text(values)), here,
                                [values](Plane& plane) { return is_done(plane.sums.start(values)); });
}

Group::Request Group::submit_reduce(const TensorView& values, int root, Here here) {
  require_on_host(values);
  require_root(*this, root, "submit_reduce");
  require_reducible(ReduceOp::sum, values.dtype());
  return Request::State::submit(
      *this, fmt::format("reduce: sum of {} on rank {}", operand_text(values), root), here,
      [values, root](Plane& plane) { return is_done(plane.sums.start_to_one(values, 1, root)); });
}

Group::Request Group::submit_broadcast(const TensorView& values, int root, Here here) {
  require_on_host(values);
  require_root(*this, root, "submit_broadcast");
  std::vector<Parcel> parcels(static_cast<std::size_t>(size()));
  if (rank() == root) {
    std::ranges::fill(parcels, Parcel{bytes_of(values), {}});
  } else {
    parcels[static_cast<std::size_t>(root)].received = bytes_of(values);
  }
  return Request::State::submit(*this, fmt::format("broadcast: {} from rank {}", operand_text(values), root), here,
                                [parcels, longest = static_cast<std::int64_t>(values.bytes())](Plane& plane) {
                                  return is_done(plane.exchanges.start(parcels, longest));
                                });
}

Group::Request Group::submit_blocks(const char* method, const TensorView& sent, const TensorView& received,
                                    Blocks blocks, int root, const Here& here) {
  const int ranks = size();
  const bool to_all = blocks == Blocks::one_to_all || blocks == Blocks::all_to_all;
  if (!to_all) require_root(*this, root, method);
  const bool is_root = to_all || rank() == root;
  const bool sends_all = blocks == Blocks::root_to_one || blocks == Blocks::all_to_all;
  const bool receives_all = blocks != Blocks::root_to_one;
  // Of the blocks of all ranks, those that this rank has.
  const bool sends = blocks != Blocks::root_to_one || is_root, receives = blocks != Blocks::one_to_root || is_root;
  const std::int64_t count = blocks == Blocks::root_to_one  ? received.count()
                             : blocks == Blocks::all_to_all ? sent.count() / ranks
                                                            : sent.count();
  const auto expected = [&](bool all) { return all ? count * ranks : count; };
  if ((sends && sent.count() != expected(sends_all)) || (receives && received.count() != expected(receives_all)))
    throw InvalidArgument{
        fmt::format("{} of {} values into {}: expected a block for each of {} ranks, all of one length", method,
                    sent.count(), received.count(), ranks)};

  const auto mine = [&](const TensorView& whole, bool all, int block) {
    return all ? block_of(whole, block, ranks) : bytes_of(whole);
  };
  std::vector<Parcel> parcels(static_cast<std::size_t>(ranks));
  for (int other = 0; other < ranks; ++other) {
    Parcel& parcel = parcels[static_cast<std::size_t>(other)];
    const bool other_is_root = to_all || other == root;
    if (sends && (blocks != Blocks::one_to_root || other_is_root)) parcel.sent = mine(sent, sends_all, other);
    if (receives && (blocks != Blocks::root_to_one || other_is_root))
      parcel.received = mine(received, receives_all, other);
  }
  const Parcel own = parcels[static_cast<std::size_t>(rank())];
  if (ranks == 1) copy_block(own.sent, own.received);
  const auto longest = count * static_cast<std::int64_t>(size_of(sent.dtype()));
  const std::string on_root = to_all ? "" : fmt::format(", rank {}'s", root);
  return Request::State::submit(*this, fmt::format("{}: {} {}{}", method, count, name_of(sent.dtype()), on_root), here,
                                [parcels, own, longest](Plane& plane) {
                                  copy_block(own.sent, own.received);
                                  return is_done(plane.exchanges.start(parcels, longest));
                                });
}

Group::Request Group::submit_barrier(Here here) {
  return Request::State::submit(*this, "barrier", here,
                                [](Plane&) -> std::function<bool()> { return [] { return true; }; });
}

}  // namespace lockstep
