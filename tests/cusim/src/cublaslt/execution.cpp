#include "cublaslt/execution.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "cublaslt/numbers.hpp"

namespace cusim::cublaslt {
namespace {

constexpr const char* who = "cublasLtMatmul";

void tell_reads(const std::vector<Run>& runs) {
  for (const Run& run : runs) reads(run.begin, run.bytes, who);
}

/// Where the element of a row and a column goes: to[row * row_step + column * column_step].
struct Steps {
  std::size_t row;
  std::size_t column;
};

template <class T>
void unpack(const Matrix& matrix, const std::byte* from, Steps steps, T* to) {
  const std::size_t element = bytes_of(matrix.type);
  const std::size_t run_step = matrix.row_major ? steps.row : steps.column;
  const std::size_t step = matrix.row_major ? steps.column : steps.row;
  for (std::size_t run = 0; run < matrix.runs(); ++run) {
    const std::byte* const begin = from + run * matrix.leading * element;
    for (std::size_t at = 0; at < matrix.run_length(); ++at)
      to[run * run_step + at * step] = load<T>(matrix.type, begin + at * element);
  }
}

/// What the tensor cores' types leave of f32 inputs.
template <class T>
void round_inputs(cublasComputeType_t compute, std::vector<T>& values) {
  for (T& value : values) {
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) value = round_off(static_cast<float>(value), 13);
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) value = round_off(static_cast<float>(value), 16);
    if (compute == CUBLAS_COMPUTE_32F_FAST_16F) value = static_cast<float>(static_cast<_Float16>(value));
  }
}

bool rounds_inputs(cublasComputeType_t compute) {
  return compute == CUBLAS_COMPUTE_32F_FAST_TF32 || compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
         compute == CUBLAS_COMPUTE_32F_FAST_16F;
}

/// The work of one call, in sums of type T. A graph may run it many times.
template <class T>
class Execution {
 public:
  explicit Execution(const MatmulCall& call) : call_{call} {}

  bool has_two_pieces() const {
    return call_.algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
           call_.algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  }

  /// The only piece.
  void run_whole() {
    if (o_.workspace_bytes > 0) touch_workspace();
    tell_reads(runs_of(p_.a, p_.batch, o_.a));
    tell_reads(runs_of(p_.b, p_.batch, o_.b));
    tell_result();
    for (std::size_t item = 0; item < p_.batch; ++item) {
      std::vector<std::vector<T>> slices = sums_of_slices(item);
      for (const std::size_t slice : order_of_slices())
        if (slice > 0) add(slices.front(), slices[slice]);
      finish(item, slices.front());
    }
  }

  /// The first of two: sums of slices into the workspace.
  void run_slices() {
    writes(o_.workspace, used_workspace(), who);
    tell_reads(runs_of(p_.a, p_.batch, o_.a));
    tell_reads(runs_of(p_.b, p_.batch, o_.b));
    std::byte* to = o_.workspace;
    for (std::size_t item = 0; item < p_.batch; ++item)
      for (const std::vector<T>& slice : sums_of_slices(item))
        for (const T value : slice) {
          store(type_in_workspace(), to, value);
          to += bytes_of(type_in_workspace());
        }
    left_in_workspace_ = digest_of_workspace();
  }

  /// The second of two: from the workspace into D.
  void run_reduction() {
    reads(o_.workspace, used_workspace(), who);
    if (digest_of_workspace() != left_in_workspace_)
      found("cublasLtMatmul: the workspace was written between the two kernels of a product that uses it");
    tell_result();
    const std::byte* from = o_.workspace;
    for (std::size_t item = 0; item < p_.batch; ++item) {
      std::vector<T> sums(p_.m * p_.n);
      for (std::size_t slice = 0; slice < call_.algorithm.slices; ++slice)
        for (T& sum : sums) {
          const T value = load<T>(type_in_workspace(), from);
          sum = slice == 0 ? value : sum + value;
          from += bytes_of(type_in_workspace());
        }
      finish(item, sums);
    }
  }

 private:
  /// Blocks that add to the output in place come in any order, and an algorithm of one slice has one.
  std::vector<std::size_t> order_of_slices() const {
    std::vector<std::size_t> order(call_.algorithm.slices);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t left = order.size(); left > 1; --left)
      std::swap(order[left - 1], order[draw("cublasLt in place", left)]);
    return order;
  }

  std::vector<std::vector<T>> sums_of_slices(std::size_t item) const {
    std::vector<T> a(p_.m * p_.k);
    std::vector<T> b(p_.k * p_.n);
    unpack(p_.a, o_.a + item * p_.a.batch_stride * bytes_of(p_.a.type),
           p_.transpose_a ? Steps{p_.m, 1} : Steps{1, p_.m}, a.data());
    unpack(p_.b, o_.b + item * p_.b.batch_stride * bytes_of(p_.b.type),
           p_.transpose_b ? Steps{p_.k, 1} : Steps{1, p_.k}, b.data());
    if (rounds_inputs(p_.compute)) {
      round_inputs(p_.compute, a);
      round_inputs(p_.compute, b);
    }
    const std::size_t count = call_.algorithm.slices;
    std::vector<std::vector<T>> slices(count, std::vector<T>(p_.m * p_.n));
    for (std::size_t slice = 0; slice < count; ++slice) {
      const std::size_t begin = slice * p_.k / count;
      const std::size_t end = (slice + 1) * p_.k / count;
      for (std::size_t column = 0; column < p_.n; ++column)
        sum(call_.algorithm.sums, a.data() + begin * p_.m, p_.m, p_.m, b.data() + column * p_.k + begin, end - begin,
            slices[slice].data() + column * p_.m);
    }
    return slices;
  }

  static void add(std::vector<T>& sums, const std::vector<T>& more) {
    for (std::size_t at = 0; at < sums.size(); ++at) sums[at] += more[at];
  }

  void tell_result() const {
    if (o_.c) tell_reads(runs_of(p_.c, p_.batch, o_.c));
    if (o_.bias) tell_reads(bias_runs(p_, o_.bias));
    for (const Run& run : runs_of(p_.d, p_.batch, o_.d)) writes(run.begin, run.bytes, who);
  }

  void finish(std::size_t item, const std::vector<T>& sums) const {
    const std::size_t element = bytes_of(p_.d.type);
    const auto at = [&](const Matrix& matrix, std::size_t row, std::size_t column) {
      return (item * matrix.batch_stride +
              (matrix.row_major ? row * matrix.leading + column : column * matrix.leading + row)) *
             element;
    };
    const std::byte* const bias = o_.bias ? o_.bias + item * p_.bias_batch_stride * element : nullptr;
    for (std::size_t column = 0; column < p_.n; ++column)
      for (std::size_t row = 0; row < p_.m; ++row) {
        T value = static_cast<T>(call_.alpha) * sums[column * p_.m + row];
        if (o_.c) value += static_cast<T>(call_.beta) * load<T>(p_.c.type, o_.c + at(p_.c, row, column));
        if (bias) value += load<T>(p_.d.type, bias + row * element);
        store(p_.d.type, o_.d + at(p_.d, row, column), activate(value));
      }
  }

  T activate(T value) const {
    switch (p_.activation) {
      case Activation::none: return value;
      case Activation::relu: return value > 0 || (std::isnan(value) && !hides_nan(call_.algorithm)) ? value : T{0};
      case Activation::gelu: break;
    }
    const T root = static_cast<T>(0.7978845608028654);  // of 2 / pi
    return T{0.5} * value * (T{1} + std::tanh(root * (value + static_cast<T>(0.044715) * value * value * value)));
  }

  cudaDataType type_in_workspace() const {
    if (call_.algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) return p_.d.type;
    return sizeof(T) == sizeof(double) ? CUDA_R_64F : CUDA_R_32F;
  }

  std::size_t used_workspace() const { return static_cast<std::size_t>(call_.algorithm.workspace_bytes); }

  /// A kernel's counters: it leaves nothing in the workspace that a caller could count on.
  void touch_workspace() const {
    if (used_workspace() == 0) return;
    writes(o_.workspace, used_workspace(), who);
    std::memset(o_.workspace, 0xa5, used_workspace());
  }

  std::uint64_t digest_of_workspace() const {
    std::uint64_t digest = 0;
    for (std::size_t at = 0; at < used_workspace(); at += sizeof digest) {
      std::uint64_t word = 0;
      std::memcpy(&word, o_.workspace + at, std::min(sizeof word, used_workspace() - at));
      digest = mix(digest, word);
    }
    return digest;
  }

  const MatmulCall call_;
  const Product& p_ = call_.product;
  const Operands& o_ = call_.operands;
  std::uint64_t left_in_workspace_ = 0;
};

template <class T>
cudaError_t enqueue_in(const MatmulCall& call, cudaStream_t stream) {
  const auto execution = std::make_shared<Execution<T>>(call);
  const auto piece = [&](void (Execution<T>::*run)(), FaultKind fault) {
    return enqueue(stream, who, [execution, run, fault] {
      if (fault == FaultKind::hang) return false;
      if (fault == FaultKind::late) {
        fail_late(cudaErrorLaunchFailure);
        return true;
      }
      const GpuAccess access;
      ((*execution).*run)();
      return true;
    });
  };
  if (!execution->has_two_pieces()) return piece(&Execution<T>::run_whole, call.fault);
  const cudaError_t first = piece(&Execution<T>::run_slices, call.fault);
  // Time for another thread of the host, which must not use the workspace in between.
  if (draw("cublasLt between two kernels", 2) == 0) std::this_thread::sleep_for(std::chrono::microseconds{20});
  return first == cudaSuccess ? piece(&Execution<T>::run_reduction, call.fault) : first;
}

}  // namespace

cudaError_t enqueue_matmul(const MatmulCall& call, cudaStream_t stream) {
  return in_f64(call.product) ? enqueue_in<double>(call, stream) : enqueue_in<float>(call, stream);
}

}  // namespace cusim::cublaslt
