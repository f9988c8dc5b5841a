// The data plane of a simulated rank.
#include "core/comm/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/base/element_type.hpp"
#include "core/comm/messenger.hpp"
#include "core/comm/slices.hpp"
#include "core/device/device.hpp"
#include "job/sim/job.hpp"
#include "job/sim/mpi_routes.hpp"
#include "job/sim/planes.hpp"
#include "sync/reduce/dispatch.hpp"

namespace lockstep::sim {
namespace {

/// A byte that no sum can use by mistake: it makes a NaN in floating-point types.
constexpr int poison = 0xff;

/// "f32[12] cut at 0 4 8 12".
std::string describe_slices(const TensorView& view, SliceBounds bounds) {
  constexpr std::size_t shown = 9;
  return fmt::format("{} cut at {}", describe(view),
                     bounds.size() <= shown ? fmt::format("{}", fmt::join(bounds, " "))
                                            : fmt::format("{} places, digest {}", bounds.size(),
                                                          to_hex(digest_of(std::as_bytes(bounds)))));
}

/// As MPI, which has no 16-bit floating-point numbers.
void require_summable(const TensorView& tensor) {
  if (is_16_bit_float(tensor.dtype()))
    throw InvalidArgument{fmt::format("the simulated backend cannot add up tensors of {}", name_of(tensor.dtype()))};
}

template <class T>
void add(const Bytes& bytes, std::span<T> sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    T x;
    std::memcpy(&x, bytes.data() + i * sizeof(T), sizeof(T));
    sum[i] = static_cast<T>(sum_of<sum_t<T>>(sum[i], x));
  }
}

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(Plane& plane, int rank)
      : plane_{plane},
        own_{rank},
        rank_{plane.place_of(rank)},
        size_{static_cast<int>(plane.members().size())},
        messenger_{make_messenger(plane, rank)} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "sim"; }
  Stream& stream() override { return Stream::host(); }
  Messenger* messenger() override { return messenger_.get(); }

  Buffer allocate(std::size_t bytes) override {
    Buffer buffer = inside(Stream::host()).allocate(bytes);
    if (bytes > 0 && is_carried(bytes)) std::memset(buffer.data(), poison, bytes);
    return buffer;
  }

  Work broadcast(const TensorView& tensor, int root) override {
    const std::string what = fmt::format("broadcast of {} from replica {}", describe(tensor), plane_.rank_at(root));
    const Travel travel{tensor.bytes(), broadcast_route(plane_, rank_, root, bytes_of(tensor))};
    if (rank_ == root) return start(what, tensor, travel, {.from = Needs::From::nobody}, [](std::uint64_t) {});
    return start(what, nothing_of(tensor), travel, {.from = Needs::From::one, .rank = plane_.rank_at(root)},
                 [this, tensor, root](std::uint64_t number) { take(number, root, 0, tensor); });
  }

  Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) override {
    const auto [first, count] = slice_of(bounds, rank_);
    if (received.dtype() != mine.dtype() || received.count() != count * size_)
      throw InvalidArgument{fmt::format("all_to_all into {}: expected {} pieces of {} elements of {}",
                                        describe(received), size_, count, name_of(mine.dtype()))};
    const bool is_of_mpi = bytes_of_longest(mine, bounds) <= Messenger::short_slice_bytes;
    const auto bytes_to = [&](int place) { return bytes_of(slice(mine, bounds, place)); };
    return start("all_to_all of " + describe_slices(mine, bounds), mine, {mine.bytes(), by_slices(bytes_to, is_of_mpi)},
                 {}, [this, first = first, count = count, received](std::uint64_t number) {
                   for (int from = 0; from < size_; ++from)
                     take(number, from, first, received.slice(count * from, count));
                 });
  }

  Work all_gather(const TensorView& whole, SliceBounds bounds) override {
    const TensorView mine = slice(whole, bounds, rank_);
    const bool is_of_mpi = bytes_of_longest(whole, bounds) <= Messenger::short_slice_bytes;
    const Travel travel{whole.bytes(), is_of_mpi ? all_gather_route(plane_, bytes_of(whole), bytes_of(mine))
                                                 : by_slices([&](int) { return bytes_of(mine); }, false)};
    return start("all_gather of " + describe_slices(whole, bounds), mine, travel, {}, collect(whole, bounds));
  }

  Work gather(const TensorView& whole, SliceBounds bounds, int root) override {
    const std::string what =
        fmt::format("gather of {} to replica {}", describe_slices(whole, bounds), plane_.rank_at(root));
    const TensorView mine = slice(whole, bounds, rank_);
    const Travel travel{whole.bytes(), gather_route(plane_, rank_, root, bytes_of(mine))};
    if (rank_ != root) return start(what, mine, travel, {.from = Needs::From::nobody}, [](std::uint64_t) {});
    return start(what, mine, travel, {}, collect(whole, bounds));
  }

  Work all_reduce(const TensorView& tensor) override {
    require_summable(tensor);
    return start("all_reduce of " + describe(tensor), tensor,
                 {tensor.bytes(), all_reduce_route(plane_, bytes_of(tensor))}, {},
                 [this, tensor](std::uint64_t number) { sum(number, tensor); });
  }

  Work reduce(const TensorView& tensor, int root) override {
    require_summable(tensor);
    const std::string what = fmt::format("reduce of {} to replica {}", describe(tensor), plane_.rank_at(root));
    const Travel travel{tensor.bytes(), reduce_route(plane_, rank_, root, bytes_of(tensor))};
    if (rank_ == root)
      return start(what, tensor, travel, {}, [this, tensor](std::uint64_t number) { sum(number, tensor); });
    return start(what, tensor, travel, {.from = Needs::From::nobody}, [tensor](std::uint64_t) {
      if (tensor.bytes() > 0) std::memset(tensor.data(), poison, tensor.bytes());
    });
  }

  std::unique_ptr<Communicator> subset(std::span<const int> members, std::uint64_t key) override {
    Plane& split = plane_.job().split(plane_, key, plane_.ranks_at(members));
    count_split(split, own_);
    return std::make_unique<SimCommunicator>(split, own_);
  }

  void abort() noexcept override {}

 private:
  using OnFinish = std::function<void(std::uint64_t number)>;

  /// How a collective travels, on so many bytes, which is the same number on every rank.
  struct Travel {
    std::size_t bytes;
    Route route;
  };

  class Pending final : public Work::Pending {
   public:
    Pending(Plane& plane, int rank, std::string what, std::span<const std::byte> sent, const Route& route, Needs needs,
            OnFinish on_finish)
        : plane_{plane},
          rank_{rank},
          what_{std::move(what)},
          sent_{sent},
          number_{plane.start(rank, what_, {sent.begin(), sent.end()}, route)},
          needs_{needs},
          on_finish_{std::move(on_finish)} {}

    void wait() override {
      plane_.finish(rank_, number_, needs_);
      if (!std::ranges::equal(plane_.brought(number_, rank_), sent_))
        throw CommError{fmt::format("{}: its tensor was written to before wait() returned", what_)};
      if (on_finish_) on_finish_(number_);
      plane_.leave(rank_, number_);
    }

   private:
    Plane& plane_;
    int rank_;
    std::string what_;
    std::span<const std::byte> sent_;
    std::uint64_t number_;
    Needs needs_;
    OnFinish on_finish_;
  };

  /// Sends `mine` at the call, and writes what comes in when the work is waited for: the earliest and the latest moment
  /// that any backend may choose.
  Work start(std::string what, const TensorView& mine, const Travel& travel, Needs needs, OnFinish on_finish) {
    const bool carried = is_carried(travel.bytes);
    const std::span<const std::byte> sent{mine.data(), carried ? mine.bytes() : 0};
    return Work{std::make_unique<Pending>(plane_, own_, std::move(what), sent, travel.route, needs,
                                          carried ? std::move(on_finish) : OnFinish{})};
  }

  /// Whether messages of that size bring their contents.
  bool is_carried(std::size_t bytes) const {
    const Network* const network = plane_.job().network();
    return !network || bytes <= network->links().carried_bytes;
  }

  static std::int64_t bytes_of(const TensorView& view) { return static_cast<std::int64_t>(view.bytes()); }
  static std::int64_t bytes_of_longest(const TensorView& whole, SliceBounds bounds) {
    return longest_slice(bounds) * static_cast<std::int64_t>(size_of(whole.dtype()));
  }

  /// To each rank its slice: in one of MPI's collectives, or in pieces as the library sends them
  /// (mpi_communicator.cpp).
  static Route by_slices(std::function<std::int64_t(int place)> bytes_to, bool is_of_mpi) {
    if (is_of_mpi) return {.bytes_to = std::move(bytes_to), .is_of_mpi = true};
    return {.bytes_to = std::move(bytes_to), .longest_message = Messenger::piece_bytes};
  }

  static TensorView nothing_of(const TensorView& tensor) { return tensor.reshaped({tensor.count()}).slice(0, 0); }

  struct Slice {
    std::int64_t first, count;
  };
  static Slice slice_of(SliceBounds bounds, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return {bounds[r], bounds[r + 1] - bounds[r]};
  }
  static TensorView slice(const TensorView& whole, SliceBounds bounds, int rank) {
    const auto [first, count] = slice_of(bounds, rank);
    return whole.reshaped({whole.count()}).slice(first, count);
  }

  /// Copies what `from` brought, from the element `first` on, as much as fits into `to`.
  void take(std::uint64_t number, int from, std::int64_t first, const TensorView& to) const {
    if (to.bytes() == 0) return;
    const auto offset = static_cast<std::size_t>(first) * size_of(to.dtype());
    std::memcpy(to.data(), plane_.brought(number, plane_.rank_at(from)).data() + offset, to.bytes());
  }

  OnFinish collect(const TensorView& whole, SliceBounds bounds) {
    return [this, whole, bounds = std::vector(bounds.begin(), bounds.end())](std::uint64_t number) {
      for (int from = 0; from < size_; ++from)
        if (from != rank_) take(number, from, 0, slice(whole, bounds, from));
    };
  }

  /// Adds up in an order of the backend's choosing: each collective begins with another rank.
  void sum(std::uint64_t number, const TensorView& tensor) const {
    with_element_type(tensor.dtype(), [&]<class T>() {
      const auto sums = tensor.reshaped({tensor.count()}).elements<T>();
      std::fill(sums.begin(), sums.end(), T{});
      for (int i = 0; i < size_; ++i) {
        const auto from = (static_cast<std::uint64_t>(i) + number) % static_cast<std::uint64_t>(size_);
        add(plane_.brought(number, plane_.rank_at(static_cast<int>(from))), sums);
      }
    });
  }

  Plane& plane_;
  int own_;  ///< the job's number
  int rank_;
  int size_;
  std::unique_ptr<Messenger> messenger_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(Plane& plane, int rank) {
  return std::make_unique<SimCommunicator>(plane, rank);
}

}  // namespace lockstep::sim
