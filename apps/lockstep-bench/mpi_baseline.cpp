#include "apps/lockstep-bench/mpi_baseline.hpp"

#include <array>
#include <string>

#include <fmt/format.h>
#include <mpi.h>

#include <lockstep/base/error.hpp>

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
  int ranks = 0;
  int ranks_on_node = 0;

  Comm() {
    check(MPI_Comm_dup(MPI_COMM_WORLD, &handle), "MPI_Comm_dup");
    // The default handler aborts, so no return code would ever be seen.
    check(MPI_Comm_set_errhandler(handle, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_size(handle, &ranks), "MPI_Comm_size");
    MPI_Comm node = MPI_COMM_NULL;
    check(MPI_Comm_split_type(handle, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    check(MPI_Comm_size(node, &ranks_on_node), "MPI_Comm_size");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
  }
  ~Comm() { MPI_Comm_free(&handle); }

  // The profiling interface's name, since this program's own MPI_Allreduce counts calls.
  void all_reduce(void* data, std::size_t count, MPI_Datatype type, MPI_Op op) {
    check(PMPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), type, op, handle), "MPI_Allreduce");
  }
};

MpiBaseline::MpiBaseline() : comm_{std::make_unique<Comm>()} {}
MpiBaseline::~MpiBaseline() = default;

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

std::vector<double> MpiBaseline::largest(std::vector<double> values) {
  comm_->all_reduce(values.data(), values.size(), MPI_DOUBLE, MPI_MAX);
  return values;
}

std::vector<double> MpiBaseline::mean(std::vector<double> values) {
  comm_->all_reduce(values.data(), values.size(), MPI_DOUBLE, MPI_SUM);
  for (double& value : values) value /= comm_->ranks;
  return values;
}

}  // namespace lockstep::bench
