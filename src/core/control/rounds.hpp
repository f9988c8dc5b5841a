// Who tells whom in an agreement.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep {

/// The maximum by dissemination (Hensgen, Finkel, Manber: Two Algorithms for Barrier Synchronization, 1988): in round k
/// a rank tells the rank 2^k behind it the largest words that it knows of, and hears those of the rank 2^k before it.
/// After ceil(log2(n)) rounds it knows those of all n; that it has heard some twice does not change a maximum. As many
/// messages follow each other as in MPI's own all-reduce, in which ranks that block and ranks that do not cannot meet.
class Rounds {
 public:
  using Words = std::array<std::uint64_t, 2>;

  Rounds(int rank, int size) : rank_{rank}, size_{size} {}

  int count() const { return static_cast<int>(std::bit_width(static_cast<unsigned>(size_ - 1))); }
  int to(int round) const { return (rank_ + (1 << round)) % size_; }
  int from(int round) const { return (rank_ + size_ - (1 << round)) % size_; }

  static void raise(Words& words, const Words& others) {
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = std::max(words[i], others[i]);
  }

 private:
  int rank_, size_;
};

}  // namespace lockstep
