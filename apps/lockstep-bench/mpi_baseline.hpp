// MPI as a program without lockstep would call it: the baseline of lockstep's times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::bench {

/// All ranks of the job, on a communicator of its own. Methods are blocking, and COLL unless they say otherwise;
/// CommError if MPI fails. MPI must run throughout its lifetime. AgreementListener sees none of its calls.
class MpiBaseline {
 public:
  MpiBaseline();
  MpiBaseline(const MpiBaseline&) = delete;
  ~MpiBaseline();

  /// LOCAL.
  int rank() const;
  int ranks() const;

  /// LOCAL. How many ranks share this rank's node.
  int ranks_on_node() const;

  /// Returns when all ranks have called it.
  void barrier();

  /// Sums f32 or f64 elements on the host, in place.
  void all_reduce(const TensorView& tensor);

  /// The least that an agreement costs: the maximum of two 64-bit words, 16 bytes.
  void all_reduce_16_bytes();

  /// Sends `bytes` to every other rank and receives as many from it.
  void exchange(std::int64_t bytes);

  /// Two ranks call them for each other.
  void send(int to, std::int64_t bytes);
  void receive(int from, std::int64_t bytes);

  /// The numbers of all ranks.
  std::vector<std::uint64_t> gather(std::uint64_t number);

  /// The largest over the ranks, element by element. Every rank gives the same number of values.
  std::vector<double> largest(std::vector<double> values);
  /// The same with the mean.
  std::vector<double> mean(std::vector<double> values);

 private:
  struct Comm;
  /// Memory for messages, of which nobody reads the content.
  std::byte* sent(std::int64_t bytes);
  std::byte* received(std::int64_t bytes);

  std::unique_ptr<Comm> comm_;
  std::vector<std::byte> sent_, received_;
};

/// Memory that the ranks of a node share, an array for each. COLL to make and to destroy.
class NodeArrays {
 public:
  /// Of so many bytes, rounded up to whole pages.
  explicit NodeArrays(std::int64_t bytes);
  NodeArrays(const NodeArrays&) = delete;
  ~NodeArrays();

  std::byte* first() const { return first_; }
  std::byte* own() const { return first_ + place_ * stride_; }
  std::int64_t stride() const { return stride_; }
  int count() const { return count_; }
  int place() const { return place_; }  ///< of this rank's own

 private:
  struct Window;
  std::unique_ptr<Window> window_;
  std::byte* first_ = nullptr;
  std::int64_t stride_ = 0;
  int count_ = 1, place_ = 0;
};

}  // namespace lockstep::bench
