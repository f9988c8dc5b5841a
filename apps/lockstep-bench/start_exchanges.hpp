// What the ranks of a job exchange before its program runs.
#pragma once

namespace lockstep::bench {

/// On the CPU, on any number of ranks above 1. tests/apps/start_exchanges.cpp counts them.
struct StartExchanges {
  int agreements;   ///< and other maxima that take as many messages
  int collectives;  ///< MPI's own, the making of communicators among them
};
constexpr StartExchanges start_exchanges{16, 18};

}  // namespace lockstep::bench
