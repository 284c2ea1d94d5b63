// W12 in registers: words of the three planes to BF16 pairs. The bit layout is that of specpilot_kernels/w12/layout.py;
// a test compares the masks below with the ones there. Compiled for the host too, where tests run the same source.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define W12_HD __host__ __device__ __forceinline__
#else
#define W12_HD inline
#endif

namespace w12 {

constexpr uint32_t kMaskA = 0x80708070u;  // sign, upper mantissa
constexpr uint32_t kMaskE = 0x07800780u;  // exponent offset
constexpr uint32_t kMaskB = 0x000F000Fu;  // lower mantissa
constexpr int kRecordRows = 128;
constexpr int kRecordColumns = 64;
constexpr int kPlaneWords = 1024;
constexpr int kRecordWords = 3 * kPlaneWords;

W12_HD uint32_t rotate_right(uint32_t word, int count) {
  return count == 0 ? word : (word >> count) | (word << (32 - count));
}

W12_HD uint32_t rotate_left(uint32_t word, int count) {
#ifdef __CUDA_ARCH__
  return __funnelshift_l(word, word, count);
#else
  return count == 0 ? word : (word << count) | (word >> (32 - count));
#endif
}

// Register R of a thread: two codes. The planes' masks, rotated alike, stay disjoint, so the planes are joined before
// the one rotation.
template <int R>
W12_HD uint32_t codes(uint32_t a, uint32_t e, uint32_t b) {
  const uint32_t joined =
      (a & rotate_right(kMaskA, 4 * R)) | (e & rotate_right(kMaskE, 4 * R)) | (b & rotate_right(kMaskB, 4 * R));
  return rotate_left(joined, 4 * R);
}

// What is added to two codes of a row with base b: the codes' exponent offsets become exponents. No carry leaves a half.
W12_HD uint32_t base_pair(uint32_t base) { return base << 7 | base << 23; }

// Four registers of a 16 x 16 fragment (wgmma m64k16 and mma m16n8k16, operand A): rows g and g + 8, columns 2 c and
// 2 c + 8. low is base_pair of row g, high that of row g + 8.
W12_HD void decode_fragment(uint32_t a, uint32_t e, uint32_t b, uint32_t low, uint32_t high, uint32_t out[4]) {
  out[0] = codes<0>(a, e, b) + low;
  out[1] = codes<1>(a, e, b) + high;
  out[2] = codes<2>(a, e, b) + low;
  out[3] = codes<3>(a, e, b) + high;
}

// An escape's 16 bits into its half of a register.
W12_HD uint32_t put_half(uint32_t word, uint32_t half, uint32_t bits) {
  return half ? (word & 0x0000FFFFu) | bits << 16 : (word & 0xFFFF0000u) | bits;
}

}  // namespace w12
