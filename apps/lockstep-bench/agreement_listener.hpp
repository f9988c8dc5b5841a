// Listens to the library's agreements through MPI's profiling interface. This program has its own MPI_Sendrecv, which
// the library's calls find first, and which passes them on to PMPI_Sendrecv.
#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Is told of each agreement in which this rank waits, on any communicator: of the first of its ceil(log2(n)) rounds
/// and the last (src/core/control/mpi_channel.cpp). There is none among fewer than two ranks. At most one may live at a
/// time.
class AgreementListener {
 public:
  AgreementListener();
  AgreementListener(const AgreementListener&) = delete;
  virtual ~AgreementListener();

  /// `bytes` are those of each round.
  virtual void on_begin(std::int64_t bytes) = 0;
  virtual void on_end() {}
};

}  // namespace lockstep::bench
