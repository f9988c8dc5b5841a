// What devices.hpp and device.hpp do on GPUs. The contracts are there; names lack "cuda" here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.hpp"
#include "core/device/device_marks.hpp"

namespace lockstep::detail::cuda {

int device_count();
std::vector<std::string> device_uuids();
std::string why_no_device();
std::unique_ptr<Device> make_device(int index);
int device_index();
void synchronize_device();
void read_device(void* to, const void* from, std::size_t bytes);
std::uint64_t memory_bytes();
std::unique_ptr<DeviceMarks> make_marks();

}  // namespace lockstep::detail::cuda
