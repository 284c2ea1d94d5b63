// Escapes of one warp's 16 rows of a record: what the two words of its slot say, as specpilot_kernels/w12/cuda.py makes
// them. Compiled for the host too, where tests run the same source.
#pragma once
#include "w12_decode.cuh"

namespace w12 {

constexpr uint32_t kNoEscape = 0xFFFFFFFFu, kEscapeList = 0x80000000u;

// Of a slot's first word: how many escapes its list has, 0 where they stand in the slot. An escape has 29 bits.
W12_HD uint32_t list_length(uint32_t first) { return first >> 30 == kEscapeList >> 30 ? first - kEscapeList : 0; }

// Calls put for every STEP-th escape of a slot, from number i on.
#ifdef __CUDACC__
#pragma nv_exec_check_disable
#endif
template <int STEP, class Put>
W12_HD void each_escape(uint32_t first, uint32_t second, const uint32_t* escapes, uint32_t i, const Put& put) {
  const uint32_t length = list_length(first);
#ifdef __CUDACC__
#pragma unroll 1  // most lists are short, and instructions that are in no cache cost more than a loop
#endif
  for (; i < (length ? length : 2); i += STEP) {
    const uint32_t entry = length ? escapes[second + i] : i ? second : first;
    if (entry != kNoEscape) put(entry);
  }
}

}  // namespace w12
