// Cheaper copies of a weight in registers: words of a record's planes to BF16 pairs, for the layout of w12/layout.py (the
// 8-bit view) and that of q_gemm/layout.py (INT8, INT6). Places of numbers among threads, steps and registers are those
// of W12. Compiled for the host too, where tests run the same source.
#pragma once
#include <cstdint>

#include "w12_decode.cuh"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#endif

namespace q {

constexpr uint32_t kMaskView = w12::kMaskA | w12::kMaskE;
constexpr uint32_t kMidpoint = 0x00080008u;     // the lower four mantissa bits of the view
constexpr uint32_t kMaskInt6Low = 0x000F000Fu;  // lower four bits of the integer + 32
constexpr uint32_t kMaskInt6High = 0x00300030u;
constexpr uint32_t kOne = 0x43004300u;  // 128 as BF16, twice: a mantissa's unit is 1

// Two BF16 numbers less `less`, twice; exact for what is used here.
W12_HD uint32_t subtract_pair(uint32_t pair, uint32_t less) {
#ifdef __CUDA_ARCH__
  const __nv_bfloat162 difference = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&pair), *reinterpret_cast<const __nv_bfloat162*>(&less));
  return *reinterpret_cast<const uint32_t*>(&difference);
#else
  uint32_t result = 0;
  for (int half = 0; half < 2; ++half) {
    union { uint32_t bits; float number; } a{(pair >> 16 * half & 0xFFFFu) << 16}, b{(less >> 16 * half & 0xFFFFu) << 16};
    a.number -= b.number;
    result |= (a.bits >> 16) << 16 * half;
  }
  return result;
#endif
}

// (word & mask) | set in one instruction; the compiler makes two of it where both are constants.
W12_HD uint32_t mask_and_set(uint32_t word, uint32_t mask, uint32_t set) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(word), "r"(mask), "r"(set));
  return result;
#else
  return (word & mask) | set;
#endif
}

// Bits of `first` where the mask has ones, of `second` elsewhere.
W12_HD uint32_t select_bits(uint32_t first, uint32_t second, uint32_t mask) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(result) : "r"(first), "r"(second), "r"(mask));
  return result;
#else
  return (first & mask) | (second & ~mask);
#endif
}

// Two numbers of the view. base is w12::base_pair of their row.
template <int R>
W12_HD uint32_t view(uint32_t a, uint32_t e, uint32_t base) {
  const uint32_t joined = select_bits(a, e, w12::rotate_right(w12::kMaskA, 4 * R));
  return mask_and_set(w12::rotate_left(joined, 4 * R), kMaskView, kMidpoint) + base;
}

// In a row with base 0 a number may have exponent field 0, and then no midpoint.
W12_HD uint32_t without_midpoint(uint32_t pair) {
  if (!(pair & 0x00007F80u)) pair &= ~0x0008u;
  if (!(pair & 0x7F800000u)) pair &= ~0x00080000u;
  return pair;
}

// The four registers of a fragment, as w12::decode_fragment, with midpoints everywhere.
W12_HD void decode_view(uint32_t a, uint32_t e, uint32_t low, uint32_t high, uint32_t out[4]) {
  out[0] = view<0>(a, e, low);
  out[1] = view<1>(a, e, high);
  out[2] = view<2>(a, e, low);
  out[3] = view<3>(a, e, high);
}

// What is still to do where low or high is 0.
W12_HD void correct_view(uint32_t low, uint32_t high, uint32_t out[4]) {
  if (!low) out[0] = without_midpoint(out[0]), out[2] = without_midpoint(out[2]);
  if (!high) out[1] = without_midpoint(out[1]), out[3] = without_midpoint(out[3]);
}

// Sign and magnitude, 0 to 127: 128 + magnitude is its BF16 mantissa.
W12_HD uint32_t int8_pair(uint32_t word) {
  return mask_and_set(word, 0x80008000u, subtract_pair(mask_and_set(word, 0x007F007Fu, kOne), kOne));
}

// first holds registers 0 and, rotated right by 8, 1; second 2 and 3.
W12_HD void decode_int8(uint32_t first, uint32_t second, uint32_t out[4]) {
  out[0] = int8_pair(first);
  out[1] = int8_pair(w12::rotate_left(first, 8));
  out[2] = int8_pair(second);
  out[3] = int8_pair(w12::rotate_left(second, 8));
}

// ODD: an odd step's words are rotated by two more.
template <int R, int ODD>
W12_HD uint32_t int6_pair(uint32_t low, uint32_t high) {
  constexpr int kCount = 4 * R + 2 * ODD;
  constexpr uint32_t kMask = kCount ? kMaskInt6Low >> kCount | kMaskInt6Low << ((32 - kCount) & 31) : kMaskInt6Low;
  const uint32_t word = w12::rotate_left(select_bits(low, high, kMask), kCount);
  return subtract_pair(mask_and_set(word, kMaskInt6Low | kMaskInt6High, kOne), 0x43204320u);  // 128 + 32
}

template <int ODD>
W12_HD void decode_int6(uint32_t low, uint32_t high, uint32_t out[4]) {
  out[0] = int6_pair<0, ODD>(low, high);
  out[1] = int6_pair<1, ODD>(low, high);
  out[2] = int6_pair<2, ODD>(low, high);
  out[3] = int6_pair<3, ODD>(low, high);
}

}  // namespace q
