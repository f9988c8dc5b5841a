// Tensors of one process, which needs no mpirun: tensors
#include <cstdio>

#include <lockstep/lockstep.hpp>

using namespace lockstep;

int main() {
  const Tensor rows = Tensor::from({1.F, 2.F, 3.F, 4.F, 5.F, 6.F}, {3, 2});
  for (float& value : rows.view().elements<float>()) value *= 2;  // in place: a view owns nothing
  float sum = 0;
  for (const float value : rows.view().slice(2, 4).elements<float>()) sum += value;
  std::printf("the last two rows of %s add up to %g\n", describe(rows.view()).c_str(), sum);
  try {
    rows.to_vector<double>();
  } catch (const Error& error) {  // every exception of lockstep's, with what was wrong and where
    std::printf("%s\n", error.what());
  }
}
