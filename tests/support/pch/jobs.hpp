// For tests that start jobs: what nearly every test includes, and what reads a job's result.
#include <nlohmann/json.hpp>

#include "support/pch/tests.hpp"
