#include "apps/bench-torch/reducer.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <mpi.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace lockstep::bench_torch {
namespace {

/// The first process listens on a free port, and tells it to all.
c10::intrusive_ptr<c10d::Store> make_store(int rank) {
  c10::intrusive_ptr<c10d::TCPStore> store;
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;
  options.isServer = rank == 0;
  options.port = 0;
  std::uint16_t port = 0;
  if (options.isServer) {
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    port = store->getPort();
  }
  MPI_Bcast(&port, 1, MPI_UINT16_T, 0, MPI_COMM_WORLD);
  options.port = port;
  return store ? store : c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

class GlooReducer final : public Reducer {
 public:
  GlooReducer(const ReplicaParameters& parameters, ReducerKind kind) : is_static_{kind == ReducerKind::tuned} {
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
    const auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(make_store(rank), rank, size, options);
    // Backward passes come from the last layer to the first.
    auto [buckets, limits] =
        c10d::compute_bucket_assignment_by_size(parameters.tensors, {first_bucket, bucket}, parameters.sparse);
    std::ranges::reverse(buckets);
    std::ranges::reverse(limits);
    reducer_.emplace(parameters.tensors, std::move(buckets), std::move(limits), group, parameters.sparse, bucket, false,
                     kind == ReducerKind::tuned, std::unordered_map<std::size_t, std::string>{}, first_bucket);
    if (is_static_) reducer_->set_static_graph();
  }

  void begin() override {
    (void)reducer_->rebuild_buckets();  // in the order in which the first pass made the gradients
    reducer_->prepare_for_forward();
  }

  void backward(const at::Tensor& loss) override {
    reducer_->prepare_for_backward({});
    loss.backward();
    // The first pass of a static graph shows what there is.
    if (is_static_ && std::exchange(is_first_, false)) reducer_->delay_all_reduce();
  }

 private:
  static constexpr std::int64_t first_bucket = c10d::kDefaultFirstBucketBytes, bucket = c10d::kDefaultBucketBytesCap;

  bool is_static_, is_first_ = true;
  std::optional<c10d::Reducer> reducer_;
};

}  // namespace

bool has_reducer() {
  return true;
}

std::unique_ptr<Reducer> make_reducer(const ReplicaParameters& parameters, ReducerKind kind) {
  return std::make_unique<GlooReducer>(parameters, kind);
}

}  // namespace lockstep::bench_torch
