// What ends a program that uses cusim's cuBLASLt in a way that cuBLASLt forbids. The process that forks those programs
// does not call CUDA.
#include <array>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <cublasLt.h>

#include "child.hpp"
#include "cublaslt_calls.hpp"

using namespace cusim::test;

TEST_CASE("memory of the host ends the process") {
  is_found("A is not in the GPU's memory", [] {
    Call<float> call{{}};
    alignas(16) float aligned[24] = {};
    (void)call.matmul.run(aligned, call.b.data(), call.d.data(), call.d.data(), &call.algorithm);
  });
}

TEST_CASE("an operand behind its allocation ends the process") {
  is_found("B ends 4 bytes behind its allocation", [] {
    Call<float> call{{}};
    const OnGpu<float> shorter{small_numbers<float>(29)};
    (void)call.matmul.run(call.a.data(), shorter.data(), call.d.data(), call.d.data(), &call.algorithm);
  });
}

TEST_CASE("less alignment than promised ends the process") {
  is_found("A is aligned to 4 bytes", [] {
    Call<float> call{{}};
    const OnGpu<float> longer{small_numbers<float>(25)};
    (void)call.matmul.run(longer.data() + 1, call.b.data(), call.d.data(), call.d.data(), &call.algorithm);
  });
}

TEST_CASE("a result over an operand ends the process") {
  is_found("D overlaps A", [] {
    Call<float> call{{}};
    const OnGpu<float> both{small_numbers<float>(64)};
    (void)call.matmul.run(both.data(), call.b.data(), both.data() + 20, both.data() + 20, &call.algorithm);
  });
}

TEST_CASE("an operand that was not written ends the process") {
  is_found("which nothing has written", [] {
    Call<float> call{{}};
    const OnGpu<float> unwritten{24};
    (void)call.matmul.run(unwritten.data(), call.b.data(), call.d.data(), call.d.data(), &call.algorithm);
    (void)cudaDeviceSynchronize();
  });
}

TEST_CASE("a destroyed layout ends the process") {
  is_found("the layout descriptor was destroyed", [] {
    Call<float> call{{}};
    check(cublasLtMatrixLayoutDestroy(call.matmul.a_layout));
    (void)call.run();
  });
}

TEST_CASE("factors in the GPU's memory end the process") {
  is_found("alpha is in the GPU's memory", [] {
    Call<float> call{{}};
    const OnGpu<float> factor{std::vector<float>{1}};
    (void)cublasLtMatmul(call.matmul.library, call.matmul.description, factor.data(), call.a.data(),
                         call.matmul.a_layout, call.b.data(), call.matmul.b_layout, factor.data(), call.d.data(),
                         call.matmul.d_layout, call.d.data(), call.matmul.d_layout, &call.algorithm,
                         call.matmul.workspace.data(), 1 << 16, nullptr);
  });
}

TEST_CASE("a workspace that streams share ends the process") {
  is_found("without being ordered after cublasLtMatmul", [] {
    Call<float> call{{.k = 64, .schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}};
    const OnGpu<float> d{20};
    std::array<cudaStream_t, 2> streams{};
    for (auto& stream : streams) check(cudaStreamCreate(&stream));
    for (const auto& each : call.matmul.algorithms()) {
      if (each.workspaceSize == 0) continue;
      check(call.matmul.run(call.a.data(), call.b.data(), d.data(), d.data(), &each.algo, 1, 0, streams[0]));
      check(call.matmul.run(call.a.data(), call.b.data(), call.d.data(), call.d.data(), &each.algo, 1, 0, streams[1]));
    }
    check(cudaDeviceSynchronize());
  });
}

TEST_CASE("a workspace that threads share ends the process") {
  is_found("the workspace was written between", [] {
    Call<float> call{{.k = 64, .schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}};
    const OnGpu<float> other{std::vector<float>(call.matmul.a.elements(1), 9)};
    const OnGpu<float> d{20};
    for (const auto& each : call.matmul.algorithms()) {
      if (each.workspaceSize == 0) continue;
      const auto multiply = [&](const OnGpu<float>& from, const OnGpu<float>& to) {
        for (int time = 0; time < 200; ++time)
          (void)call.matmul.run(from.data(), call.b.data(), to.data(), to.data(), &each.algo);
      };
      std::thread thread{[&] { multiply(other, d); }};
      multiply(call.a, call.d);
      thread.join();
      check(cudaDeviceSynchronize());
    }
  });
}
