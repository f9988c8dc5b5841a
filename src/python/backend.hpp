// The backend of torch.distributed: its collectives as requests of a group.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <lockstep/sync/group/group.hpp>

#include "python/call.hpp"
#include "python/mail.hpp"
#include "python/torch_version.hpp"
#include "python/turns.hpp"
#include "python/work.hpp"

namespace lockstep::python {

struct MadeGroup;

/// One group of ranks. The ranks agree on every call before it moves a byte: its name, its operands' shapes and types,
/// its root and its operation. Messages show lines of Python; ranks do not compare them.
class AgreedBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;

  /// COLL over `ranks` of the job, on the thread that started the runtime, without Python's lock. If `ranks` is empty,
  /// the group has all ranks of the job, and the end of the job is compared too. `name` is the same on all of them, and
  /// only theirs.
  AgreedBackend(std::string name, std::vector<int> ranks, std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "lockstep"; }
  c10::intrusive_ptr<Options> getBackendOptions() LOCKSTEP_SINCE_2_9(override) { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) LOCKSTEP_SINCE_2_9(override) { options_->timeout = timeout; }
  std::uint64_t getSequenceNumberForGroup() override { return calls_; }

  // In backend_sums.cpp.
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, Lists& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;
  /// Adds up the ranks' tensors, in place. Those of floating-point numbers hold the sum over the rank's own shards
  /// (Range::of_rank), and this completes the tree over all `shards`. `call` says what it is for: "backward: step 3",
  /// and the ranks compare it.
  c10::intrusive_ptr<c10d::Work> sum_over_shards(const std::string& call, Tensors tensors, int shards);

  // In backend.cpp.
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(Lists& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 const c10d::AllgatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  c10::intrusive_ptr<c10d::Work> scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<std::int64_t>& output_sizes,
                                               std::vector<std::int64_t>& input_sizes,
                                               const c10d::AllToAllOptions& options) override;
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override;
  /// A barrier. MismatchError unless all ranks give the same `call`.
  c10::intrusive_ptr<c10d::Work> agree(const std::string& call);

  // In backend_messages.cpp.
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int tag) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool waits_for_all) override;

  /// Calls up to `endCoalescing` are one Work.
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

 protected:
  /// Submits a request to the group that it is given, which compares the text of the call alone. It may outlive the
  /// function that makes it.
  using Submit = std::function<Group::Request(Group&, const Here&)>;

  /// One or more requests that are one call.
  struct Collective {
    c10d::OpType type;
    Here here;
    std::chrono::milliseconds timeout;  ///< of c10d's options
    Call::Of of;
    bool is_backward = false;  ///< a backward pass makes it
    int other = -1;            ///< Call::Parts
    std::string text = {};     ///< of all of it, for messages of this rank
    std::vector<std::function<void()>> finish = {};
    Tensors kept = {}, result = {};
    std::optional<c10::Stream> stream = {};
    std::vector<std::shared_ptr<Task>> tasks = {};  ///< last, as in Call::Parts
  };

  Collective begin(c10d::OpType type, std::chrono::milliseconds timeout) const;
  /// Submits one request of a collective. `text` is what the ranks compare.
  void add(Collective& collective, const std::string& text, Submit submit);
  c10::intrusive_ptr<c10d::Work> end(Collective collective);

  void require_rank(std::int64_t rank, std::string_view role, const Here& here) const;  ///< `role`: "root"
  static std::string name_of_rank(int rank, const std::vector<int>& ranks);

  /// Of a message with rank `rank` of the group.
  Mail::Side side_of(int rank, std::int64_t tag, std::string what, const Here& here,
                     std::span<std::byte> memory = {}) const;

  const std::vector<int>& ranks() const { return ranks_; }  ///< of the job
  /// From now on callbacks of futures have no turns (future_of).
  void call_back_at_once() { turns_of_futures_ = nullptr; }
  Group& group() { return group_; }

 private:
  AgreedBackend(std::string name, std::vector<int> ranks, MadeGroup made, std::chrono::milliseconds timeout);

  // A tensor as the memory of a request, which is contiguous.
  static at::Tensor to_send(Collective& collective, const at::Tensor& tensor);
  static at::Tensor to_fill(Collective& collective, const at::Tensor& tensor);
  static at::Tensor to_change(Collective& collective, const at::Tensor& tensor);
  /// The list as one tensor with one more dimension.
  static at::Tensor to_send(Collective& collective, const Tensors& list);
  static at::Tensor to_fill(Collective& collective, const Tensors& list);

  void add_allreduce(Collective& collective, const std::string& name, const at::Tensor& tensor,
                     const c10d::ReduceOp& op);
  void add_sparse_allreduce(Collective& collective, const at::Tensor& tensor, const c10d::ReduceOp& op);
  void add_reduce_scatter(Collective& collective, const std::string& name, const at::Tensor& sent,
                          const at::Tensor& output, const c10d::ReduceOp& op);
  void add_allgather(Collective& collective, const std::string& text, const at::Tensor& input,
                     const at::Tensor& output);
  c10::intrusive_ptr<c10d::Work> swap(Collective collective, const Tensors& inputs, const Tensors& outputs);

  const at::Tensor& only(const Tensors& tensors, const Here& here) const;
  void require_one_for_each(std::size_t count, std::string_view what, const Here& here) const;
  void require_list(const Tensors& list, const at::Tensor& like, const Here& here) const;
  /// One list, or none on another rank than `root`.
  void require_lists(const Lists& lists, std::optional<int> root, const at::Tensor& like, const Here& here) const;
  static void require_pairs(const Tensors& inputs, const Tensors& outputs, const Here& here);
  void require_blocks(const at::Tensor& whole, const at::Tensor& block, const Here& here) const;

  std::string name_;
  std::vector<int> ranks_;  ///< of the job
  Group group_;
  std::shared_ptr<Turns> turns_ = std::make_shared<Turns>(), turns_of_futures_ = turns_;
  std::shared_ptr<CountedCalls> of_all_ranks_;
  Call::Of all_ranks_;  ///< what a call of this group is
  c10::intrusive_ptr<Options> options_;
  std::atomic<std::uint64_t> calls_ = 0;
  std::atomic<std::int64_t> monitored_barriers_ = 0;

  bool coalesces_ = false;
  std::vector<std::shared_ptr<Call>> coalesced_;
};

}  // namespace lockstep::python
