#include "cublaslt/operands.hpp"

#include <algorithm>
#include <string>

namespace cusim::cublaslt {
namespace {

[[noreturn]] void wrong(const std::string& what) {
  found("cublasLtMatmul: " + what);
}

void check_memory(const std::string& name, const std::vector<Run>& runs) {
  const std::byte* begin = runs.front().begin;
  const std::byte* end = begin;
  for (const Run& run : runs) end = std::max(end, run.begin + run.bytes);
  const Memory memory = memory_at(begin);
  if (memory.kind != MemoryKind::device) wrong(name + " is not in the GPU's memory");
  if (memory.device != current_device()) wrong(name + " is in another GPU's memory");
  if (end > memory.begin + memory.bytes)
    wrong(name + " ends " + std::to_string(end - (memory.begin + memory.bytes)) + " bytes behind its allocation");
}

void check_alignment(const std::string& name, const void* address, std::size_t promised) {
  if (reinterpret_cast<std::uintptr_t>(address) % promised != 0)
    wrong(name + " is aligned to " + std::to_string(alignment_of(address)) +
          " bytes, and its algorithm was asked for with " + std::to_string(promised));
}

std::vector<Run> sorted(std::vector<Run> runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& left, const Run& right) { return left.begin < right.begin; });
  return runs;
}

bool overlap(const std::vector<Run>& left, const std::vector<Run>& right) {
  auto l = left.begin();
  auto r = right.begin();
  while (l != left.end() && r != right.end()) {
    if (l->begin + l->bytes <= r->begin)
      ++l;
    else if (r->begin + r->bytes <= l->begin)
      ++r;
    else
      return true;
  }
  return false;
}

bool overlaps_itself(const std::vector<Run>& runs) {
  return std::adjacent_find(runs.begin(), runs.end(), [](const Run& left, const Run& right) {
           return left.begin + left.bytes > right.begin;
         }) != runs.end();
}

bool same_places(const Matrix& left, const Matrix& right) {
  return left.leading == right.leading && left.batch_stride == right.batch_stride;
}

}  // namespace

std::vector<Run> runs_of(const Matrix& matrix, std::size_t batch, const std::byte* address) {
  const std::size_t element = bytes_of(matrix.type);
  std::vector<Run> runs;
  for (std::size_t item = 0; item < batch; ++item) {
    const std::byte* const begin = address + item * matrix.batch_stride * element;
    if (matrix.leading == matrix.run_length() || matrix.runs() == 1) {
      runs.push_back({begin, matrix.runs() * matrix.run_length() * element});
      continue;
    }
    for (std::size_t run = 0; run < matrix.runs(); ++run)
      runs.push_back({begin + run * matrix.leading * element, matrix.run_length() * element});
  }
  return runs;
}

std::vector<Run> bias_runs(const Product& product, const std::byte* bias) {
  const std::size_t element = bytes_of(product.d.type);
  std::vector<Run> runs;
  for (std::size_t item = 0; item < product.batch; ++item) {
    runs.push_back({bias + item * product.bias_batch_stride * element, product.m * element});
    if (product.bias_batch_stride == 0) break;
  }
  return runs;
}

void check_operands(const Product& product, const Operands& operands, const Algorithm& algorithm) {
  struct Read {
    std::string name;
    std::vector<Run> runs;
  };
  std::vector<Read> others;
  const auto reads_of = [&](const char* name, const Matrix& matrix, const std::byte* address, std::size_t promised) {
    check_alignment(name, address, promised);
    others.push_back({name, sorted(runs_of(matrix, product.batch, address))});
  };
  reads_of("A", product.a, operands.a, algorithm.promised.a);
  reads_of("B", product.b, operands.b, algorithm.promised.b);
  if (operands.c) {
    reads_of("C", product.c, operands.c, algorithm.promised.c);
    check_memory("C", others.back().runs);
    if (operands.c == operands.d && same_places(product.c, product.d)) others.pop_back();
  }
  if (operands.bias) {
    check_alignment("the bias", operands.bias, algorithm.promised.bias);
    others.push_back({"the bias", bias_runs(product, operands.bias)});
  }
  if (operands.workspace_bytes > 0) {
    check_alignment("the workspace", operands.workspace, 256);
    others.push_back({"the workspace", {{operands.workspace, operands.workspace_bytes}}});
  }
  check_alignment("D", operands.d, algorithm.promised.d);
  const std::vector<Run> written = sorted(runs_of(product.d, product.batch, operands.d));
  check_memory("D", written);
  if (overlaps_itself(written)) wrong("the products of the batch overlap in D");
  for (const Read& other : others) {
    check_memory(other.name, other.runs);
    if (overlap(other.runs, written)) wrong("D overlaps " + other.name);
    if (operands.workspace_bytes > 0 && other.name != "the workspace" && overlap(other.runs, others.back().runs))
      wrong("the workspace overlaps " + other.name);
  }
}

}  // namespace cusim::cublaslt
