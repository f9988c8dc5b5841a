// torch-jobs JOB ARGUMENT...
#include "jobs.hpp"

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  const std::string job = argc > 1 ? argv[1] : "";
  if (job == "victim") return lockstep::test::victim(argc, argv);
  if (job == "guest") return lockstep::test::guest(argc, argv);
  if (job == "exchange") return lockstep::test::exchange(argc, argv);
  if (job == "models") return lockstep::test::models(argc, argv);
  std::fprintf(stderr, "torch-jobs: expected victim, guest, exchange or models, found %s\n", job.c_str());
  return 2;
}
