// Faults that a test asks for: CUSIM_FAULTS is a list of
//   [rank=R ]call=NAME[ nth=N] kind=error|late|hang|memory[ code=NUMBER]
// separated by semicolons. Each befalls the Nth call (from 1; 1 if unsaid) of the function NAME, of rank R or of every
// rank. NUMBER is the error's, in the numbers of the function's library.
#pragma once

#include <string_view>

#include "core.hpp"

namespace cusim {

struct Fault {
  FaultKind kind = FaultKind::none;
  int code = 0;  ///< 0: the library's usual one
};

/// What befalls this call; counts it.
Fault next_fault(std::string_view call);

}  // namespace cusim
