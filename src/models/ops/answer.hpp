// What kernels tell the host, by the name that they use.
#pragma once

#include "core/device/answer.hpp"

namespace lockstep::ops {

using detail::Answer;

}  // namespace lockstep::ops
