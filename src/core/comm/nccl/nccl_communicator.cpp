#include "core/comm/nccl/nccl_communicator.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/element_type.hpp"
#include "core/comm/nccl/bootstrap.hpp"
#include "core/comm/nccl/failure_watch.hpp"
#include "core/device/device.hpp"
#include "core/device/stream_spans.hpp"

namespace lockstep {
namespace {

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::u8: return ncclUint8;
  }
  throw InvalidArgument{"NCCL has no such element type"};
}

/// A part of a tensor, as bytes.
struct Piece {
  std::byte* data;
  std::size_t bytes;
};

Piece slice_of(const TensorView& tensor, SliceBounds bounds, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  const std::size_t element = size_of(tensor.dtype());
  return {tensor.data() + static_cast<std::size_t>(bounds[index]) * element,
          static_cast<std::size_t>(bounds[index + 1] - bounds[index]) * element};
}

/// What one rank sends and receives in one group.
class Exchange {
 public:
  /// An empty piece is not sent: the other rank knows its length as well and does not wait for it.
  void send(Piece piece, int to) {
    if (piece.bytes) sends_.push_back({piece, to});
  }
  void receive(Piece piece, int from) {
    if (piece.bytes) receives_.push_back({piece, from});
  }
  bool is_empty() const { return sends_.empty() && receives_.empty(); }

  /// Runs everything in one group, so that no order among the ranks can block them. Ends the group whatever happens in
  /// it; otherwise NCCL would keep it open for the calling thread.
  NcclCall run(NcclApi& api, ncclComm_t comm, Stream& stream) const {
    if (const ncclResult_t result = api.group_start(); is_failure(result)) return {"ncclGroupStart", result};
    NcclCall inside{};
    try {
      inside = enqueue_all(api, comm, stream);
    } catch (...) {
      (void)api.group_end();
      throw;
    }
    const NcclCall end{"ncclGroupEnd", api.group_end()};
    return is_failure(inside.result) ? inside : end;
  }

 private:
  struct Part {
    Piece piece;
    int peer;
  };

  NcclCall enqueue_all(NcclApi& api, ncclComm_t comm, Stream& stream) const {
    for (const auto& [piece, peer] : sends_) {
      const ncclResult_t result = api.send(piece.data, piece.bytes, ncclUint8, peer, comm, stream);
      if (is_failure(result)) return {"ncclSend", result};
    }
    for (const auto& [piece, peer] : receives_) {
      const ncclResult_t result = api.recv(piece.data, piece.bytes, ncclUint8, peer, comm, stream);
      if (is_failure(result)) return {"ncclRecv", result};
    }
    return {"ncclGroupEnd", ncclSuccess};
  }

  std::vector<Part> sends_, receives_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(int rank, int size, Stream& compute, StartedNccl started, NcclOptions options,
                   std::shared_ptr<Ticker> ticker)
      : rank_{rank},
        size_{size},
        compute_{compute},
        stream_{std::move(started.stream)},
        handle_{std::move(started.handle)} {
    if (options.on_failure) watch_.emplace(*handle_, std::move(ticker), std::move(options.on_failure));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "nccl"; }
  Stream& stream() override { return compute_; }

  // ncclMemAlloc, with registration, would save NCCL a copy on some networks. But it is not ordered by a stream, and
  // releasing its memory waits for the device.
  Buffer allocate(std::size_t bytes) override { return inside(compute_).allocate(bytes); }

  Work broadcast(const TensorView& tensor, int root) override {
    return enqueue("broadcast", tensor, [&](NcclApi& api, ncclComm_t comm) {
      return NcclCall{"ncclBroadcast",
                      api.broadcast(tensor.data(), tensor.data(), tensor.bytes(), ncclUint8, root, comm, *stream_)};
    });
  }

  Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) override {
    const std::size_t bytes = slice_of(mine, bounds, rank_).bytes;
    const auto place_of = [&](int peer) {
      return Piece{received.data() + static_cast<std::size_t>(peer) * bytes, bytes};
    };
    Exchange exchange;
    for_each_peer([&](int peer) {
      exchange.send(slice_of(mine, bounds, peer), peer);
      exchange.receive(place_of(peer), peer);
    });
    start_after_compute();
    if (bytes) stream_->copy(place_of(rank_).data, slice_of(mine, bounds, rank_).data, bytes);
    return run("all_to_all", exchange);
  }

  Work all_gather(const TensorView& whole, SliceBounds bounds) override {
    Exchange exchange;
    for_each_peer([&](int peer) {
      exchange.send(slice_of(whole, bounds, rank_), peer);
      exchange.receive(slice_of(whole, bounds, peer), peer);
    });
    start_after_compute();
    return run("all_gather", exchange);
  }

  Work gather(const TensorView& whole, SliceBounds bounds, int root) override {
    Exchange exchange;
    for_each_peer([&](int peer) {
      if (peer == root) exchange.send(slice_of(whole, bounds, rank_), peer);
      if (rank_ == root) exchange.receive(slice_of(whole, bounds, peer), peer);
    });
    start_after_compute();
    return run("gather", exchange);
  }

  Work all_reduce(const TensorView& tensor) override {
    return enqueue("all_reduce", tensor, [&](NcclApi& api, ncclComm_t comm) {
      return NcclCall{"ncclAllReduce", api.all_reduce(tensor.data(), tensor.data(), count_of(tensor),
                                                      nccl_type(tensor.dtype()), ncclSum, comm, *stream_)};
    });
  }

  Work reduce(const TensorView& tensor, int root) override {
    return enqueue("reduce", tensor, [&](NcclApi& api, ncclComm_t comm) {
      return NcclCall{"ncclReduce", api.reduce(tensor.data(), tensor.data(), count_of(tensor),
                                               nccl_type(tensor.dtype()), ncclSum, root, comm, *stream_)};
    });
  }

  void abort() noexcept override { handle_->abort(); }

 private:
  /// The end of what is enqueued so far. Only the compute stream waits for it; the host continues to enqueue.
  class Enqueued final : public Work::Pending {
   public:
    explicit Enqueued(NcclCommunicator& owner) : owner_{owner}, end_{inside(*owner.stream_).record()} {}

    void wait() override {
      owner_.handle_->check("the wait for a collective");
      inside(owner_.compute_).wait(*end_);
    }

   private:
    NcclCommunicator& owner_;
    std::unique_ptr<Event> end_;
  };

  static std::size_t count_of(const TensorView& tensor) { return static_cast<std::size_t>(tensor.count()); }

  /// Begins with the next rank. Otherwise all ranks would send to the same one first.
  template <class Body>
  void for_each_peer(Body&& body) const {
    for (int step = 1; step < size_; ++step) body((rank_ + step) % size_);
  }

  void start_after_compute() { inside(*stream_).wait(*inside(compute_).record()); }

  std::optional<StreamSpan> span_of(const char* purpose) {
    if (!StreamTrace::is_on()) return std::nullopt;
    return std::optional<StreamSpan>{std::in_place, *stream_, trace::Kind::sum, BucketSpans::name_of(purpose)};
  }

  Work enqueue(const char* purpose, const TensorView& tensor, const NcclHandle::Body& body) {
    if (tensor.count() == 0) return Work::done();
    start_after_compute();
    const auto span = span_of(purpose);
    handle_->call(purpose, body);
    return Work{std::make_unique<Enqueued>(*this)};
  }

  Work run(const char* purpose, const Exchange& exchange) {
    if (!exchange.is_empty()) {
      const auto span = span_of(purpose);
      handle_->call(purpose, [&](NcclApi& api, ncclComm_t comm) { return exchange.run(api, comm, *stream_); });
    }
    return Work{std::make_unique<Enqueued>(*this)};
  }

  int rank_;
  int size_;
  Stream& compute_;
  std::shared_ptr<Stream> stream_;
  std::unique_ptr<NcclHandle> handle_;
  std::optional<FailureWatch> watch_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                     NcclOptions options, const NcclTools& tools) {
  NcclTools all = tools;
  all.progress = options.progress;
  StartedNccl started = start_nccl(host, device, all, options.init_timeout, options.on_failure, options.stream);
  return std::make_unique<NcclCommunicator>(host.rank(), host.size(), compute, std::move(started), std::move(options),
                                            tools.ticker);
}

std::unique_ptr<Communicator> make_real_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                          NcclOptions options) {
  NcclTools tools = real_nccl_tools();
  tools.limits.enqueue = options.enqueue_timeout;
  // One after the other, they end before others lose their patience with this rank.
  tools.limits.finalize = std::min<Seconds>(tools.limits.finalize, options.init_timeout / 3);
  tools.limits.abort = std::min<Seconds>(tools.limits.abort, options.init_timeout / 3);
  return make_nccl_communicator(host, device, compute, std::move(options), tools);
}

}  // namespace lockstep
