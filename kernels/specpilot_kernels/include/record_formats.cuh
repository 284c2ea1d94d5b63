// Forms a weight's records take: which bytes are read, how a thread's words become fragments, what its rows of W need.
// Compiled for the host too, where tests run the same source.
//
// A record has eight warps of 16 rows, whose words lie together (record_order.cuh). load reads those of a lane through a
// Memory, whose read16 and read8 get 16 or 8 bytes so far from the lane's place: 16 bytes a lane from its warp's first.
// Row is what a thread knows of its two rows of W, g and g + 8 of the 16; fragment gives the registers of step s, to
// which correct adds, all steps at once, what few rows need.
#pragma once
#include "q_decode.cuh"
#include "record_order.cuh"

#ifndef __CUDACC__
struct uint2 { uint32_t x, y; };
struct uint4 { uint32_t x, y, z, w; };
#endif

namespace formats {

W12_HD uint32_t word_of(const uint4& v, int s) { return s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w; }

template <class T>
W12_HD T read_constant(const T* p) {
#ifdef __CUDA_ARCH__
  return __ldg(p);
#else
  return *p;
#endif
}

// Of W12.
struct BasePairs {
  uint32_t low, high;
  W12_HD void load(const uint8_t* bases) { low = w12::base_pair(read_constant(bases)), high = w12::base_pair(read_constant(bases + 8)); }
  W12_HD void look() {}  // waits for what was loaded, if there is something to find out
  W12_HD void correct(uint32_t (&)[4][4]) const {}
  W12_HD float result(int, float sum) const { return sum; }
};

struct ViewBases : BasePairs {
  bool has_zero;  // of the warp: one branch for all lanes, and mostly not taken
  W12_HD void look() {
    has_zero = !low || !high;
#ifdef __CUDA_ARCH__
    has_zero = __any_sync(0xFFFFFFFFu, has_zero);
#endif
  }
  W12_HD void correct(uint32_t (&steps)[4][4]) const {
    if (!has_zero) return;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int s = 0; s < 4; ++s) q::correct_view(low, high, steps[s]);
  }
};

// Of integers.
struct Scales {
  float low, high;
  W12_HD void load(const float* scales, int n, int num_rows) {
    const int last = num_rows - 1;
    low = read_constant(scales + (n < last ? n : last)), high = read_constant(scales + (n + 8 < last ? n + 8 : last));
  }
  W12_HD void look() {}
  W12_HD void correct(uint32_t (&)[4][4]) const {}
  W12_HD float result(int is_high, float sum) const { return (is_high ? high : low) * sum; }
};

constexpr int kWarpPlane = 4 * w12::kWarpWords;  // bytes of a plane of W12, that a warp has

// BYTES are read of every record, which is STRIDE long: an equal piece of each warp where that is less.
template <int BYTES, int STRIDE = BYTES>
struct Sizes {
  static constexpr int kBytes = BYTES, kStride = STRIDE, kPieces = BYTES == STRIDE ? 1 : w12::kRecordWarps;
  static constexpr int kWarpBytes = BYTES / w12::kRecordWarps, kWarpStride = STRIDE / w12::kRecordWarps;
};

// kAhead: records that a warp of the product of few rows has on their way.
struct W12 : Sizes<4 * w12::kRecordWords> {
  static constexpr int kAhead = 2;
  static constexpr bool kHasEscapes = true;
  using Row = BasePairs;
  struct Words { uint4 planes[3]; };
  template <class Memory>
  static W12_HD void load(Words& w, const Memory& memory, int) {
    for (int p = 0; p < 3; ++p) w.planes[p] = memory.read16(kWarpPlane * p);
  }
  static W12_HD void fragment(const Words& w, int s, const Row& row, uint32_t (&out)[4]) {
    w12::decode_fragment(word_of(w.planes[0], s), word_of(w.planes[1], s), word_of(w.planes[2], s), row.low, row.high, out);
  }
};

// Planes A and E of the same records.
struct View : Sizes<8 * w12::kPlaneWords, 4 * w12::kRecordWords> {
  static constexpr int kAhead = 2;
  static constexpr bool kHasEscapes = true;
  using Row = ViewBases;
  struct Words { uint4 planes[2]; };
  template <class Memory>
  static W12_HD void load(Words& w, const Memory& memory, int) {
    for (int p = 0; p < 2; ++p) w.planes[p] = memory.read16(kWarpPlane * p);
  }
  static W12_HD void fragment(const Words& w, int s, const Row& row, uint32_t (&out)[4]) {
    q::decode_view(word_of(w.planes[0], s), word_of(w.planes[1], s), row.low, row.high, out);
  }
};

struct Int8 : Sizes<8 * w12::kPlaneWords> {
  static constexpr int kAhead = 3;
  static constexpr bool kHasEscapes = false;
  using Row = Scales;
  struct Words { uint4 planes[2]; };
  template <class Memory>
  static W12_HD void load(Words& w, const Memory& memory, int) {
    for (int p = 0; p < 2; ++p) w.planes[p] = memory.read16(kWarpPlane * p);
  }
  static W12_HD void fragment(const Words& w, int s, const Row&, uint32_t (&out)[4]) {
    q::decode_int8(word_of(w.planes[0], s), word_of(w.planes[1], s), out);
  }
};

struct Int6 : Sizes<6 * w12::kPlaneWords> {
  static constexpr int kAhead = 4;
  static constexpr bool kHasEscapes = false;
  using Row = Scales;
  struct Words { uint4 low; uint2 high; };
  template <class Memory>
  static W12_HD void load(Words& w, const Memory& memory, int lane) {
    w.low = memory.read16(0), w.high = memory.read8(kWarpPlane - 8 * lane);
  }
  static W12_HD void fragment(const Words& w, int s, const Row&, uint32_t (&out)[4]) {
    const uint32_t low = word_of(w.low, s), high = s < 2 ? w.high.x : w.high.y;
    if (s & 1) q::decode_int6<1>(low, high, out);
    else q::decode_int6<0>(low, high, out);
  }
};

}  // namespace formats
