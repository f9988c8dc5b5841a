// Ranks that agree on each call before they send anything. A program that only wants agreed, reproducible sums over its
// ranks needs nothing else of this library but a Runtime.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/sync/reduce/exact_sum.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>

namespace lockstep {

class ReplicaGroup;

namespace detail {
struct GroupCall;
}

/// An ordered set of ranks that work together:
///
///   Group all = runtime.group();
///   std::vector<double> sums = losses_of(all.rank());
///   all.all_reduce(std::span{sums});  // the same bits on every rank, and in every run
///
/// A handle: copies refer to the same group. A rank may be in any number of groups, and groups may overlap. A group
/// must not outlive the runtime. Use it only on the thread that made the runtime; requests may be used on others (see
/// Request).
///
/// Methods are COLL over the ranks of the group, agreed and blocking, unless their comment says otherwise. Agreed: no
/// rank sends anything before all are known to do the same. If ranks call different methods, or the same method from
/// different places or with operands of different shapes or types, every rank gets a MismatchError that says where each
/// rank is; the group can be used again. If a rank has failed, the others get a PeerError. Its rank() is the rank in
/// the group, while its text names the replica of the job.
///
/// All ranks must make groups, free them and call blocking methods in one common order, from which each rank leaves out
/// the groups that it is not in. Otherwise they deadlock until the stall timeout ends the job with a line that says
/// where each rank is. A rank that never arrives ends the job in the same way, with a line that names the rank. So a
/// rank that works in one group must not keep another group waiting for that long. At the end of the job, ranks that
/// have nothing more to do wait as long as others still meet in their groups.
///
/// The watchdogs follow at most 16 groups of a rank at a time, besides that of all ranks. In further groups, a rank
/// neither detects late ranks nor is detected when it is late.
class LOCKSTEP_API Group {
 public:
  /// LOCAL. This rank's place in the group, from 0.
  int rank() const;
  /// LOCAL. The number of ranks in the group.
  int size() const;

  /// COLL over `ranks`, not over this group. Makes a group of these ranks of this one, in the order of the list.
  /// InvalidArgument, before any communication, unless each is a rank of this group, each is named once, and this rank
  /// is among them. If the ranks own GPUs, NCCL is started among them, which takes up to seconds.
  Group subset(std::span<const int> ranks, Here here = Here::current()) const;

  /// LOCAL. This group, for calls that its ranks make at different places of the program:
  ///
  ///   if (all.rank() == 0) all.anywhere().broadcast(std::span{weights}, 0);
  ///   ...  // elsewhere, on the other ranks
  ///   all.anywhere().broadcast(std::span{received}, 0);
  ///
  /// The ranks then compare all but the places, which messages still show. Either all ranks make a call in this way, or
  /// none does. A `subset` may be made so too; it compares the places of its own calls.
  Group anywhere() const;

  /// LOCAL. The same for a layer in between, whose calls are made of requests: of a request, the ranks compare `call`
  /// alone, and messages show it:
  ///
  ///   Group::Request raw = all.anywhere("all_reduce: MAX of bool[3]").submit_all_gather(mine, of_all);
  ///
  /// Equal texts must stand for requests that fit together. The text up to the first colon is the name of the call.
  Group anywhere(std::string call) const;

  /// Adds up every rank's values, in place. Values on the host are added pairwise in the order of the ranks, so their
  /// bits depend on the number of ranks alone; for those on GPUs, NCCL chooses the order. Integers wrap around.
  /// InvalidArgument, before any communication, for a tensor that is neither in the host's memory nor in that of this
  /// rank's device.
  void all_reduce(const TensorView& values, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  void all_reduce(std::span<T, N> values, Here here = Here::current()) {
    all_reduce(view_of(values), here);
  }

  /// Combines the values by `op`. The mean divides the sum by the number of ranks; it is for floating-point types. An
  /// exact sum is rounded once for each element, so its bits do not depend on the order of the ranks. InvalidArgument,
  /// before any communication, for exact sums of other types than f32 and f64, and on GPUs.
  void all_reduce(ReduceOp op, const TensorView& values, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  void all_reduce(ReduceOp op, std::span<T, N> values, Here here = Here::current()) {
    all_reduce(op, view_of(values), here);
  }

  /// `sum` becomes that of all ranks' numbers: the same on every rank, whichever rank has added up which of them.
  template <std::floating_point T>
  void all_reduce(ExactSum<T>& sum, Here here = Here::current()) {
    auto words = sum.words();
    add_up_words(words, detail::dtype_of<T>, here);
    sum = ExactSum<T>::of_words(words);
  }

  /// Overwrites every rank's values with those of `root`, a rank of this group. InvalidArgument as for all_reduce, and
  /// if there is no such rank.
  void broadcast(const TensorView& values, int root, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  void broadcast(std::span<T, N> values, int root, Here here = Here::current()) {
    broadcast(view_of(values), root, here);
  }

  /// Every rank's values, one after the other in the order of the ranks. Ranks may bring different numbers of values.
  template <class T, std::size_t N>
    requires detail::Element<std::remove_const_t<T>>
  std::vector<std::remove_const_t<T>> all_gather(std::span<T, N> values, Here here = Here::current()) {
    using Value = std::remove_const_t<T>;
    const Tensor mine = Tensor::from(std::span<const Value>{values}, {static_cast<std::int64_t>(values.size())});
    return gather(mine, here).template to_vector<Value>(here);
  }

  /// Returns when every rank is here, with the same label. Moves nothing.
  void agree(std::string_view label, Here here = Here::current());

  /// MismatchError, which shows the values, unless all ranks have the same: options, a tolerance. Pads nothing: every
  /// byte counts.
  void same_on_all(std::string_view name, std::span<const std::byte> value, Here here = Here::current());

  /// DriftError, which names the ranks outside the majority, unless all ranks have the same. Compares digests.
  void attest(std::string_view name, std::span<const std::byte> replica, Here here = Here::current());

  /// Called instead of another method by a rank that cannot go on: throws `failure` here, and a PeerError with its
  /// words on the other ranks, wherever they are.
  [[noreturn]] void fail(std::exception_ptr failure, Here here = Here::current());

  /// LOCAL. Names what this rank does from here on, for sentences about ranks that are gone or late: "it was in
  /// 'assembling', computing". For a program without a strategy; with one, they name its step. Empty for no name. Keeps
  /// 48 bytes.
  void name_phase(std::string_view name);

  /// What a group does while its program goes on:
  ///
  ///   Group::Request sum = all.submit_all_reduce(std::span{sums});
  ///   ...  // `sums` is left alone
  ///   sum.wait();
  ///
  /// The ranks agree on each request before it moves a byte. A group's requests begin in the order in which they were
  /// submitted; several are under way at a time. All ranks submit to one group, and call its blocking methods, in the
  /// same order. But groups do not wait for each other: ranks may submit to different groups in different orders, also
  /// on different threads, and wait in any order.
  ///
  /// If MPI provides MPI_THREAD_MULTIPLE (RuntimeOptions::mpi_threads), requests progress in the background, and any
  /// thread may submit, test and wait. Otherwise only the thread that made the runtime may submit (ContextError on
  /// others), and requests progress only while that thread submits, tests, waits, or blocks in a method whose agreement
  /// is pending; not while it makes a group, or waits in a sum of a step. On other threads, `test` and `wait` then only
  /// see that thread's progress.
  ///
  /// A rank that does not come to a request is named like one that does not come to a blocking method, once another
  /// has waited for it for the stall timeout.
  ///
  /// A handle: copies refer to the same request. It keeps its group alive, and must not outlive the runtime, unless it
  /// was waited for and has no values on a GPU. If nothing else keeps the group alive, drop the last handle on the
  /// thread that made the runtime. When the last handle of a request is destroyed, it waits until the request is done,
  /// so the memory of the values may then be freed. An exception of that wait is dropped.
  class LOCKSTEP_API Request {
   public:
    /// LOCAL, never blocks, from any thread. Whether it is done. MismatchError or PeerError, each time, if the ranks
    /// did not agree.
    bool test();

    /// COLL, blocking, from any thread. Returns when it is done; throws as `test`.
    void wait();

    /// The same. Calls `meanwhile` again and again until then, on this thread. What that throws ends the wait alone.
    void wait(const std::function<void()>& meanwhile);

   private:
    friend class Group;
    struct State;
    explicit Request(std::shared_ptr<State> state) : state_{std::move(state)} {}

    std::shared_ptr<State> state_;
  };

  /// How a submitted sum is made; the same on every rank.
  using SumOptions = ReductionOptions::OfRequest;

  // COLL, but these return at once, whatever other ranks do. Values, and an object that gets new rows, must stay alive
  // and untouched until the request is done. Only host memory travels: values on this rank's GPU are copied to the host
  // and back, in order with the work on Strategy::stream. The call sends the values that previously enqueued work
  // leaves there. Work enqueued after `test` has returned true, or `wait` has returned, sees the received values. One
  // rank may have its values on the host, another on its GPU. Before any communication: InvalidArgument as for
  // all_reduce, for a `root` that is not a rank of the group, for values whose lengths or types do not fit, and for
  // invalid options; ContextError on a thread that may not call MPI, and for values on a GPU while a step is captured.
  // Error, the first time, if the system has no thread left for requests that go on by themselves.

  /// As all_reduce of values on the host, with the same bits unless there is a wire type.
  [[nodiscard]] Request submit_all_reduce(const TensorView& values, const SumOptions& options = {},
                                          Here here = Here::current());
  template <detail::Element T, std::size_t N>
  [[nodiscard]] Request submit_all_reduce(std::span<T, N> values, const SumOptions& options = {},
                                          Here here = Here::current()) {
    return submit_all_reduce(view_of(values), options, here);
  }

  /// `rows` becomes the sum of all ranks' slices: all of their rows, in the order of the ranks. Ranks may bring
  /// different numbers of rows. InvalidArgument also for slices that do not fit together.
  [[nodiscard]] Request submit_all_reduce(IndexedSlices& rows, Here here = Here::current());

  /// As all_reduce, but only `root` gets the sum. On other ranks the values are unspecified afterwards.
  [[nodiscard]] Request submit_reduce(const TensorView& values, int root, const SumOptions& options = {},
                                      Here here = Here::current());
  template <detail::Element T, std::size_t N>
  [[nodiscard]] Request submit_reduce(std::span<T, N> values, int root, const SumOptions& options = {},
                                      Here here = Here::current()) {
    return submit_reduce(view_of(values), root, options, here);
  }

  /// As broadcast.
  [[nodiscard]] Request submit_broadcast(const TensorView& values, int root, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  [[nodiscard]] Request submit_broadcast(std::span<T, N> values, int root, Here here = Here::current()) {
    return submit_broadcast(view_of(values), root, here);
  }

  /// `to` gets the values of `from`; both are ranks of this group. On all other ranks the shape and the type are
  /// compared, and the memory is left alone; it may be null.
  [[nodiscard]] Request submit_send(const TensorView& values, int from, int to, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  [[nodiscard]] Request submit_send(std::span<T, N> values, int from, int to, Here here = Here::current()) {
    return submit_send(view_of(values), from, to, here);
  }

  /// The same for rows: on `to`, `rows` becomes the rows of `from`, in new memory. The numbers of rows need not be the
  /// same, and the other ranks may bring none.
  [[nodiscard]] Request submit_send(Tensor& rows, int from, int to, Here here = Here::current());

  // In the following, all ranks' blocks have the same length, and what is for all ranks holds one block per rank, in
  // rank order. Memory that is written must not overlap any other operand; send buffers are never written to.

  /// The first half of a sum: `mine` becomes this rank's block of the sum that all_reduce would make of `all`, with the
  /// same bits. The second half is submit_all_gather.
  [[nodiscard]] Request submit_reduce_scatter(const TensorView& all, const TensorView& mine,
                                              const SumOptions& options = {}, Here here = Here::current());
  template <class S, std::size_t N, detail::Element T, std::size_t M>
    requires std::same_as<std::remove_const_t<S>, T>
  [[nodiscard]] Request submit_reduce_scatter(std::span<S, N> all, std::span<T, M> mine, const SumOptions& options = {},
                                              Here here = Here::current()) {
    return submit_reduce_scatter(view_of(all), view_of(mine), options, here);
  }

  /// `all` becomes every rank's `mine`.
  [[nodiscard]] Request submit_all_gather(const TensorView& mine, const TensorView& all, Here here = Here::current());
  template <class S, std::size_t N, detail::Element T, std::size_t M>
    requires std::same_as<std::remove_const_t<S>, T>
  [[nodiscard]] Request submit_all_gather(std::span<S, N> mine, std::span<T, M> all, Here here = Here::current()) {
    return submit_all_gather(view_of(mine), view_of(all), here);
  }

  /// `rows` becomes the rows of all ranks, one after the other in the order of the ranks, in new memory. A row is what
  /// has one index in the first dimension; ranks may bring different numbers of rows.
  [[nodiscard]] Request submit_all_gather(Tensor& rows, Here here = Here::current());

  /// As submit_all_gather of blocks, for `root` alone. On other ranks, `all` is left alone and may be empty.
  [[nodiscard]] Request submit_gather(const TensorView& mine, const TensorView& all, int root,
                                      Here here = Here::current());
  template <class S, std::size_t N, detail::Element T, std::size_t M>
    requires std::same_as<std::remove_const_t<S>, T>
  [[nodiscard]] Request submit_gather(std::span<S, N> mine, std::span<T, M> all, int root,
                                      Here here = Here::current()) {
    return submit_gather(view_of(mine), view_of(all), root, here);
  }

  /// `mine` becomes this rank's block of `all` on `root`. On other ranks, `all` is not read and may be empty.
  [[nodiscard]] Request submit_scatter(const TensorView& all, const TensorView& mine, int root,
                                       Here here = Here::current());
  template <class S, std::size_t N, detail::Element T, std::size_t M>
    requires std::same_as<std::remove_const_t<S>, T>
  [[nodiscard]] Request submit_scatter(std::span<S, N> all, std::span<T, M> mine, int root,
                                       Here here = Here::current()) {
    return submit_scatter(view_of(all), view_of(mine), root, here);
  }

  /// Block r of `received` becomes this rank's block of rank r's `sent`.
  [[nodiscard]] Request submit_all_to_all(const TensorView& sent, const TensorView& received,
                                          Here here = Here::current());
  template <class S, std::size_t N, detail::Element T, std::size_t M>
    requires std::same_as<std::remove_const_t<S>, T>
  [[nodiscard]] Request submit_all_to_all(std::span<S, N> sent, std::span<T, M> received, Here here = Here::current()) {
    return submit_all_to_all(view_of(sent), view_of(received), here);
  }

  /// Parts of any length: of `rows`, the first `counts[0]` are for rank 0, the next `counts[1]` for rank 1, and so on.
  /// `rows` becomes what the ranks have for this one, in their order and in new memory, and `counts` their numbers.
  /// InvalidArgument also unless `counts` has a number for each rank, together those of the rows.
  [[nodiscard]] Request submit_all_to_all(Tensor& rows, std::span<std::int64_t> counts, Here here = Here::current());

  /// Done when every rank has submitted it.
  [[nodiscard]] Request submit_barrier(Here here = Here::current());

 private:
  friend class Strategy;
  explicit Group(std::shared_ptr<ReplicaGroup> group) : group_{std::move(group)} {}

  template <class T, std::size_t N>
  static TensorView view_of(std::span<T, N> values) {
    using Value = std::remove_const_t<T>;
    auto* const data = const_cast<Value*>(values.data());  // what is sent is not written to
    return {reinterpret_cast<std::byte*>(data), {static_cast<std::int64_t>(values.size())}, detail::dtype_of<Value>};
  }
  detail::GroupCall call(std::string text, const Here& here) const;
  void add_up_words(std::span<std::int64_t> words, DType of, const Here& here);
  Tensor gather(Tensor values, const Here& here);

  std::shared_ptr<ReplicaGroup> group_;
  bool compares_places_ = true;
  std::string call_ = {};  ///< what the ranks compare of a request; if empty, what it says itself
};

}  // namespace lockstep
