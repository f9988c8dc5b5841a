// torch-jobs JOB ARGUMENT...
#include "jobs.hpp"

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include <torch/types.h>

at::Tensor lockstep::test::read_doubles(const std::string& path, at::IntArrayRef shape) {
  std::ifstream file{path, std::ios::binary | std::ios::ate};
  const auto bytes = static_cast<std::int64_t>(file.tellg());
  at::Tensor values = torch::empty({bytes / 8}, torch::kDouble);
  if (!file.seekg(0).read(static_cast<char*>(values.data_ptr()), bytes))
    throw std::runtime_error{"cannot read " + path};
  return values.view(shape);
}

int main(int argc, char** argv) {
  const std::string job = argc > 1 ? argv[1] : "";
  if (job == "victim") return lockstep::test::victim(argc, argv);
  if (job == "guest") return lockstep::test::guest(argc, argv);
  if (job == "exchange") return lockstep::test::exchange(argc, argv);
  if (job == "models") return lockstep::test::models(argc, argv);
  std::fprintf(stderr, "torch-jobs: expected victim, guest, exchange or models, found %s\n", job.c_str());
  return 2;
}
