// A backend of torch.distributed around another one, such as NCCL.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "python/backend.hpp"
#include "python/inner_calls.hpp"

namespace lockstep::python {

/// The ranks of a group agree on each call, and then another backend makes it. A call returns at once: neither the
/// agreement nor the other backend is waited for, so the latter works on one call while the ranks agree on the next. If
/// they do not agree, the other backend is not called, and the group can be used again. Sends, receives and the
/// monitored barrier of tensors on the host are those of AgreedBackend: their bytes travel over MPI.
class AroundBackend final : public AgreedBackend {
 public:
  using Inner = c10::intrusive_ptr<c10d::Backend>;

  /// As AgreedBackend. `inner` has the same ranks, in the same order.
  AroundBackend(std::string name, std::vector<int> ranks, std::chrono::milliseconds timeout, Inner inner);

  const std::string getBackendName() const override { return "lockstep_" + inner_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) LOCKSTEP_SINCE_2_9(override);

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors,
                                                     const c10d::AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, Lists& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override;
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 const c10d::ReduceScatterOptions& options) override;
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
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override;
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override;
  c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int tag) override;

  bool supportsCoalescing() const override { return inner_->supportsCoalescing(); }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;

  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 private:
  /// A call of the inner backend.
  using Begin = std::function<c10::intrusive_ptr<c10d::Work>(c10d::Backend&)>;

  struct Agreed {
    c10d::OpType type;
    std::chrono::milliseconds timeout;
    std::string text;  ///< what the ranks compare
    Tensors tensors;   ///< what the call uses
    Tensors result;    ///< what its future gets
    Begin begin;
    std::function<void()> finish = {};  ///< what is done once the call has ended; may be null
    /// What the ranks exchange, and what each then looks at, before it begins; nothing if they are null.
    std::function<Group::Request(Group&, const Here&)> submit = {};
    std::function<void(const Here&)> check = {};
  };

  template <class... Arguments>
  using Method = c10::intrusive_ptr<c10d::Work> (c10d::Backend::*)(Arguments...);

  /// A call of `method` with aliases of the tensors, in place or from `inputs` to `outputs`.
  template <class How>
  static Agreed agreed(c10d::OpType type, std::string text, Tensors& tensors, const How& options,
                       Method<Tensors&, const How&> method);
  template <class Out, class In, class How>
  static Agreed agreed(c10d::OpType type, std::string text, Out& outputs, In& inputs, const How& options,
                       Method<Out&, In&, const How&> method);

  c10::intrusive_ptr<c10d::Work> make(Agreed call);
  /// Lets all ranks compare how many elements each sends to, and expects from, each other; if two differ, the call
  /// fails on all.
  void compare_parts(Agreed& call, std::vector<std::int64_t> sent, const std::vector<std::int64_t>& expected) const;
  c10::intrusive_ptr<c10d::Work> make_message(Collective collective, int peer, std::shared_ptr<Task> agreement,
                                              const at::Tensor& tensor, const Begin& begin);
  /// Puts the call in its place among the inner ones, with the stream that `tensors` need.
  c10::intrusive_ptr<c10d::Work> end_at(InnerCalls& calls, Collective collective, const Tensors& tensors,
                                        std::vector<std::shared_ptr<Task>> agreements,
                                        std::function<c10::intrusive_ptr<c10d::Work>()> begin);

  Inner inner_;
  std::mutex mutex_;  ///< of collectives, held from a request to its place among the inner calls
  std::shared_ptr<InnerCalls> collectives_ = std::make_shared<InnerCalls>();
  std::map<int, std::shared_ptr<InnerCalls>> messages_;  ///< by the other rank; each is apart from the others

  /// Between startCoalescing and endCoalescing.
  struct Coalesced {
    std::vector<std::function<void()>> checks;
    std::vector<Begin> begins;
    Tensors tensors, result;
    std::vector<std::function<void()>> finish;
    bool has_messages = false;
    std::vector<std::shared_ptr<Task>> agreements;  ///< last, as in InnerCalls::Parts
  };
  std::optional<Coalesced> coalesced_;
};

}  // namespace lockstep::python
