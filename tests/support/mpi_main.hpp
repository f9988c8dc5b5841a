// What a test under mpirun has at hand.
#pragma once

#include <lockstep/runtime/runtime.hpp>

namespace lockstep::test {

/// The runtime that the test program's main started.
Runtime& runtime();

}  // namespace lockstep::test
