#include "apps/lockstep-bench/mpi_baseline.hpp"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>
#include <mpi.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep::bench {
namespace {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError{fmt::format("{}: {}", call, std::string(text, static_cast<std::size_t>(length)))};
}

}  // namespace

struct MpiBaseline::Comm {
  MPI_Comm handle = MPI_COMM_NULL;
  int rank = 0;
  int ranks = 0;
  int ranks_on_node = 0;

  Comm() {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
    // The default handler aborts, so no return code would ever be seen.
    check(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(handle, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(handle, &ranks), "MPI_Comm_size");
    MPI_Comm node = MPI_COMM_NULL;
    check(MPI_Comm_split_type(handle, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    check(MPI_Comm_size(node, &ranks_on_node), "MPI_Comm_size");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
  }
  ~Comm() { MPI_Comm_free(&handle); }

  void all_reduce(void* data, std::size_t count, MPI_Datatype type, MPI_Op op) {
    check(MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), type, op, handle), "MPI_Allreduce");
  }
};

MpiBaseline::MpiBaseline() : comm_{std::make_unique<Comm>()} {}
MpiBaseline::~MpiBaseline() = default;

int MpiBaseline::rank() const {
  return comm_->rank;
}

int MpiBaseline::ranks() const {
  return comm_->ranks;
}

int MpiBaseline::ranks_on_node() const {
  return comm_->ranks_on_node;
}

void MpiBaseline::barrier() {
  check(MPI_Barrier(comm_->handle), "MPI_Barrier");
}

void MpiBaseline::all_reduce(const TensorView& tensor) {
  comm_->all_reduce(tensor.data(), static_cast<std::size_t>(tensor.count()),
                    tensor.dtype() == DType::f64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM);
}

void MpiBaseline::all_reduce_16_bytes() {
  std::array<std::uint64_t, 2> words{};
  comm_->all_reduce(words.data(), words.size(), MPI_UINT64_T, MPI_MAX);
}

void MpiBaseline::exchange(std::int64_t bytes) {
  const int count = static_cast<int>(bytes);
  check(MPI_Alltoall(sent(bytes * comm_->ranks), count, MPI_BYTE, received(bytes * comm_->ranks), count, MPI_BYTE,
                     comm_->handle),
        "MPI_Alltoall");
}

void MpiBaseline::send(int to, std::int64_t bytes) {
  check(MPI_Send(sent(bytes), static_cast<int>(bytes), MPI_BYTE, to, 0, comm_->handle), "MPI_Send");
}

void MpiBaseline::receive(int from, std::int64_t bytes) {
  check(MPI_Recv(received(bytes), static_cast<int>(bytes), MPI_BYTE, from, 0, comm_->handle, MPI_STATUS_IGNORE),
        "MPI_Recv");
}

std::vector<std::uint64_t> MpiBaseline::gather(std::uint64_t number) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm_->ranks));
  check(MPI_Allgather(&number, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, comm_->handle), "MPI_Allgather");
  return all;
}

namespace {

std::byte* grown(std::vector<std::byte>& memory, std::int64_t bytes) {
  memory.resize(std::max(memory.size(), static_cast<std::size_t>(bytes)));
  return memory.data();
}

}  // namespace

std::byte* MpiBaseline::sent(std::int64_t bytes) {
  return grown(sent_, bytes);
}

std::byte* MpiBaseline::received(std::int64_t bytes) {
  return grown(received_, bytes);
}

std::vector<double> MpiBaseline::largest(std::vector<double> values) {
  comm_->all_reduce(values.data(), values.size(), MPI_DOUBLE, MPI_MAX);
  return values;
}

std::vector<double> MpiBaseline::mean(std::vector<double> values) {
  comm_->all_reduce(values.data(), values.size(), MPI_DOUBLE, MPI_SUM);
  for (double& value : values) value /= comm_->ranks;
  return values;
}

struct NodeArrays::Window {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Win handle = MPI_WIN_NULL;
  ~Window() {
    if (handle != MPI_WIN_NULL) MPI_Win_free(&handle);
    if (node != MPI_COMM_NULL) MPI_Comm_free(&node);
  }
};

NodeArrays::NodeArrays(std::int64_t bytes) : window_{std::make_unique<Window>()} {
  constexpr std::int64_t page = 4096;
  stride_ = (bytes + page - 1) / page * page;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &window_->node),
        "MPI_Comm_split_type");
  check(MPI_Comm_size(window_->node, &count_), "MPI_Comm_size");
  check(MPI_Comm_rank(window_->node, &place_), "MPI_Comm_rank");
  void* memory = nullptr;
  check(MPI_Win_allocate_shared(stride_, 1, MPI_INFO_NULL, window_->node, &memory, &window_->handle),
        "MPI_Win_allocate_shared");
  MPI_Aint size = 0;
  int unit = 0;
  // The arrays lie side by side unless MPI_INFO says otherwise (MPI 4.1, 12.2.3).
  check(MPI_Win_shared_query(window_->handle, 0, &size, &unit, &memory), "MPI_Win_shared_query");
  first_ = static_cast<std::byte*>(memory);
}

NodeArrays::~NodeArrays() = default;

}  // namespace lockstep::bench
