// Forms a weight's records take, for record_gemm.cuh: how many bytes are read and how a thread's words become fragments.
//
// A thread has number t, 0 to 255, in a record (w12/layout.py). Words are what it reads of a record; Row is what it knows
// of its two rows; fragment<S> gives the four registers of step S.
#pragma once
#include "ptx.cuh"
#include "q_decode.cuh"
#include "record_order.cuh"

namespace formats {

template <int S>
__device__ __forceinline__ uint32_t word_of(const uint4& v) {
  return S == 0 ? v.x : S == 1 ? v.y : S == 2 ? v.z : v.w;
}

struct BasePairs {
  uint32_t low, high;
  bool has_zero;
  __device__ __forceinline__ void load(const uint8_t* bases) {
    low = w12::base_pair(bases[0]), high = w12::base_pair(bases[8]);
    has_zero = __any_sync(0xFFFFFFFFu, !low || !high);
  }
};

struct NoRow {
  __device__ __forceinline__ void load(const uint8_t*) {}
};

// Of W12 records a warp's words lie together, plane by plane.
constexpr int kWarpPlane = 4 * w12::kWarpWords;

struct W12 {
  static constexpr int kBytes = 4 * w12::kRecordWords, kStride = kBytes, kPieces = 1;
  static constexpr int kWarpBytes = 3 * kWarpPlane;
  static constexpr bool kHasEscapes = true;
  using Row = BasePairs;
  struct Words { uint4 a, e, b; };
  static __device__ __forceinline__ Words read(uint32_t record, int t) {
    const uint32_t at = record + kWarpBytes * (t / 32) + 16 * (t % 32);
    return {ptx::read16(at), ptx::read16(at + kWarpPlane), ptx::read16(at + 2 * kWarpPlane)};
  }
  template <int S>
  static __device__ __forceinline__ void fragment(const Words& w, const Row& row, uint32_t (&out)[4]) {
    w12::decode_fragment(word_of<S>(w.a), word_of<S>(w.e), word_of<S>(w.b), row.low, row.high, out);
  }
};

// Planes A and E of the same records: a piece for every warp.
struct View {
  static constexpr int kBytes = 8 * w12::kPlaneWords, kStride = 4 * w12::kRecordWords, kPieces = 8;
  static constexpr int kWarpBytes = 2 * kWarpPlane;
  static constexpr bool kHasEscapes = true;
  using Row = BasePairs;
  struct Words { uint4 a, e; };
  static __device__ __forceinline__ Words read(uint32_t record, int t) {
    const uint32_t at = record + kWarpBytes * (t / 32) + 16 * (t % 32);
    return {ptx::read16(at), ptx::read16(at + kWarpPlane)};
  }
  template <int S>
  static __device__ __forceinline__ void fragment(const Words& w, const Row& row, uint32_t (&out)[4]) {
    q::decode_view(word_of<S>(w.a), word_of<S>(w.e), row.low, row.high, row.has_zero, out);
  }
};

struct Int8 {
  static constexpr int kBytes = 8 * w12::kPlaneWords, kStride = kBytes, kPieces = 1, kWarpBytes = 0;
  static constexpr bool kHasEscapes = false;
  using Row = NoRow;
  struct Words { uint4 first, second; };
  static __device__ __forceinline__ Words read(uint32_t record, int t) {
    return {ptx::read16(record + 16 * t), ptx::read16(record + 4096 + 16 * t)};
  }
  template <int S>
  static __device__ __forceinline__ void fragment(const Words& w, const Row&, uint32_t (&out)[4]) {
    q::decode_int8(word_of<S>(w.first), word_of<S>(w.second), out);
  }
};

struct Int6 {
  static constexpr int kBytes = 6 * w12::kPlaneWords, kStride = kBytes, kPieces = 1, kWarpBytes = 0;
  static constexpr bool kHasEscapes = false;
  using Row = NoRow;
  struct Words { uint4 low; uint2 high; };
  static __device__ __forceinline__ Words read(uint32_t record, int t) {
    return {ptx::read16(record + 16 * t), ptx::read8(record + 4096 + 8 * t)};
  }
  template <int S>
  static __device__ __forceinline__ void fragment(const Words& w, const Row&, uint32_t (&out)[4]) {
    q::decode_int6<S & 1>(word_of<S>(w.low), S < 2 ? w.high.x : w.high.y, out);
  }
};

}  // namespace formats
