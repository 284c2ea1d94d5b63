// The decode source of the GPU kernels, compiled for the host: a record's words to BF16 bits in the order of slots.
#include <cstdint>

#include "w12_decode.cuh"

extern "C" void decode_record(const uint32_t* planes, const uint8_t* bases, uint16_t* out) {
  for (int thread = 0; thread < 256; ++thread) {
    const int row = 16 * (thread >> 5) + (thread >> 2 & 7);
    const uint32_t low = w12::base_pair(bases[row]), high = w12::base_pair(bases[row + 8]);
    for (int step = 0; step < 4; ++step) {
      uint32_t words[4];
      const int at = 4 * thread + step;
      w12::decode_fragment(planes[at], planes[w12::kPlaneWords + at], planes[2 * w12::kPlaneWords + at], low, high, words);
      for (int i = 0; i < 8; ++i) out[32 * thread + 8 * step + i] = uint16_t(words[i >> 1] >> (16 * (i & 1)));
    }
  }
}

extern "C" uint32_t put_escape(uint32_t word, uint32_t half, uint32_t bits) { return w12::put_half(word, half, bits); }
extern "C" void masks(uint32_t out[3]) { out[0] = w12::kMaskA, out[1] = w12::kMaskE, out[2] = w12::kMaskB; }
