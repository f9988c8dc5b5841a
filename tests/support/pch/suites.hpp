// For the suites of tests/mpi: what nearly every test includes, and what they have at hand on each rank.
#include "support/pch/tests.hpp"
#include "support/ranks.hpp"
