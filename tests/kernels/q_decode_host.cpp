// The decode source of the quantised products, compiled for the host: a record's words to BF16 bits in the order of slots.
#include <cstdint>

#include "q_decode.cuh"

namespace {
template <class Decode>
void each_fragment(uint16_t* out, Decode decode) {
  for (int thread = 0; thread < 256; ++thread)
    for (int step = 0; step < 4; ++step) {
      uint32_t words[4];
      decode(thread, step, words);
      for (int i = 0; i < 8; ++i) out[32 * thread + 8 * step + i] = uint16_t(words[i >> 1] >> (16 * (i & 1)));
    }
}
}  // namespace

extern "C" void decode_int8(const uint32_t* words, uint16_t* out) {
  each_fragment(out, [&](int thread, int step, uint32_t* four) {
    q::decode_int8(words[4 * thread + step], words[1024 + 4 * thread + step], four);
  });
}

extern "C" void decode_int6(const uint32_t* words, uint16_t* out) {
  each_fragment(out, [&](int thread, int step, uint32_t* four) {
    const uint32_t low = words[4 * thread + step], high = words[1024 + 2 * thread + step / 2];
    if (step & 1) q::decode_int6<1>(low, high, four);
    else q::decode_int6<0>(low, high, four);
  });
}

extern "C" void decode_view(const uint32_t* planes, const uint8_t* bases, uint16_t* out) {
  each_fragment(out, [&](int thread, int step, uint32_t* four) {
    const int row = 16 * (thread >> 5) + (thread >> 2 & 7), at = 4 * thread + step;
    const uint32_t low = w12::base_pair(bases[row]), high = w12::base_pair(bases[row + 8]);
    q::decode_view(planes[at], planes[1024 + at], low, high, !low || !high, four);
  });
}
