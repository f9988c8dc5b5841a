// Catch2's main for tests without MPI, compiled once.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
