// Differences between the versions of PyTorch for which the extension can be built.
#pragma once

#include <torch/version.h>

#define LOCKSTEP_TORCH_HAS(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// Something that came with a version, such as what a function overrides.
#if LOCKSTEP_TORCH_HAS(8)
#define LOCKSTEP_SINCE_2_8(something) something
#else
#define LOCKSTEP_SINCE_2_8(something)
#endif
#if LOCKSTEP_TORCH_HAS(9)
#define LOCKSTEP_SINCE_2_9(something) something
#else
#define LOCKSTEP_SINCE_2_9(something)
#endif
#if LOCKSTEP_TORCH_HAS(10)
#define LOCKSTEP_SINCE_2_10(something) something
#else
#define LOCKSTEP_SINCE_2_10(something)
#endif
