// Few rows of x: a block computes 16 or 32 rows of W over all columns. Its warps take turns at the records, and their sums
// meet in shared memory. Many small blocks, plain loads and little code: what such a matrix loses, it loses before the first
// load and after the last.
//
// A warp loads its own 48 bytes a lane and record to registers, AHEAD records ahead, and its own columns of x to shared
// memory; it waits for its own copies alone. K is a multiple of 64.
#pragma once
#include "fragments.cuh"

namespace w12 {

__device__ __forceinline__ void copy_x(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// T: groups of 8 rows of x. SUB: 16 rows of W each, in a block.
template <int T, int SUB, int WARPS, int AHEAD>
struct FewRows {
  static constexpr int kThreads = 32 * WARPS, kRows = 16 * SUB;
  static constexpr int kStage = 1024 * T;  // of x
  static constexpr int kWarp = AHEAD * kStage + kPatchBytes;
  static constexpr int kSums = kRows * 8 * T;  // numbers a warp leaves
  static constexpr int kBytes = WARPS * (kWarp > 4 * kSums ? kWarp : 4 * kSums);
};

template <int T, int SUB, int WARPS, int AHEAD, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) w12_few_rows(const Arguments args) {
  using F = FewRows<T, SUB, WARPS, AHEAD>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int first16 = blockIdx.x * SUB, tile = first16 / kWarpsOfRecord, slice = first16 % kWarpsOfRecord;
  const int64_t record0 = int64_t(tile) * args.k_tiles + warp;  // then every WARPS-th
  const int count = (args.k_tiles - warp + WARPS - 1) / WARPS;
  const uint4* weights = args.records + record0 * (kRecordWords / 4) + 32 * slice + lane;
  uint4 held[AHEAD][SUB][3];
  auto load = [&](uint4 (&h)[SUB][3]) {
#pragma unroll
    for (int s = 0; s < SUB; ++s)
#pragma unroll
      for (int p = 0; p < 3; ++p) h[s][p] = load_weights(weights + 32 * s + p * (kPlaneWords / 4));
    weights += WARPS * (kRecordWords / 4);
  };
#pragma unroll
  for (int d = 0; d < AHEAD; ++d)
    if (d < count) load(held[d]);

  // x: 16-byte pieces, 8 a row, four rows at a time. Rows that x does not have hold anything: each comes to its own sums.
  const uint32_t mine = shared_address(shared) + warp * F::kWarp, room = mine + AHEAD * F::kStage;
  const int row0 = lane >> 3;
  const __nv_bfloat16* x = args.x + int64_t(row0) * args.k + warp * kRecordColumns + 8 * (lane & 7);
  const uint32_t x_to = mine + 128 * row0 + ((lane & 7 ^ row0) << 4);
  auto copy = [&](int d) {
#pragma unroll
    for (int j = 0; j < 2 * T; ++j)
      if (row0 + 4 * j < args.m) copy_x((x_to ^ (j & 1) << 6) + d * F::kStage + 512 * j, x + int64_t(4 * j) * args.k);
    x += WARPS * kRecordColumns;
  };
#pragma unroll
  for (int d = 0; d < AHEAD; ++d) {
    if (d < count) copy(d);
    close_copies();
  }
  uint32_t words[SUB], has[SUB], low[SUB], high[SUB];
  Nearer nearer[SUB];
  auto read_slots = [&](int i) {  // of the warp's records from i on, one a lane
#pragma unroll
    for (int s = 0; s < SUB; ++s) {
      words[s] = i + lane < count ? __ldg(args.slots + (record0 + (i + lane) * WARPS) * kWarpsOfRecord + slice + s) : kNone;
      has[s] = __ballot_sync(kAll, words[s] != kNone);
      nearer[s].look(args, words[s], record0 + (i + lane) * WARPS);
    }
  };
#pragma unroll
  for (int s = 0; s < SUB; ++s) {
    const uint8_t* const b = args.bases + 16 * (first16 + s) + lane / 4;
    low[s] = base_pair(__ldg(b));
    high[s] = base_pair(__ldg(b + 8));
  }
  read_slots(0);
  float sums[2][SUB][T][4] = {};  // even and odd steps apart, so that products wait less for each other
  const uint32_t x_from = mine + 128 * (lane & 7) + ((lane >> 3 ^ lane & 7) << 4);

#pragma unroll 1
  for (int base = 0; base < count; base += AHEAD) {
#pragma unroll
    for (int d = 0; d < AHEAD; ++d) {
      const int i = base + d;
      if (i >= count) break;
      uint32_t a[SUB][4][4];
#pragma unroll
      for (int s = 0; s < SUB; ++s) decode_record(a[s], held[d][s], low[s], high[s]);
      if (i + AHEAD < count) load(held[d]);
#pragma unroll
      for (int s = 0; s < SUB; ++s)
        if (has[s] & 1u << (i & 31))
          patch(a[s], __shfl_sync(kAll, words[s], i & 31), args, record0 + i * WARPS, slice + s, lane, room);
      await_copies<AHEAD - 1>();
      __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int t = 0; t < T; ++t) {
          uint32_t b[4];
          ptx::read_fragments(b, (x_from ^ half << 6) + d * F::kStage + 1024 * t);
#pragma unroll
          for (int s = 0; s < SUB; ++s) {
            ptx::warp_product(sums[0][s][t], a[s][2 * half], b[0], b[1]);
            ptx::warp_product(sums[1][s][t], a[s][2 * half + 1], b[2], b[3]);
          }
        }
      __syncwarp();
      if (i + AHEAD < count) copy(d);
      close_copies();
    }
    if (base % 32 == 0)
#pragma unroll
      for (int s = 0; s < SUB; ++s) nearer[s].bring(args);
    if ((base + AHEAD) % 32 == 0 && base + AHEAD < count) read_slots(base + AHEAD);
  }
  static_assert(32 % AHEAD == 0);
  await_copies<0>();
  __syncthreads();

  // [warp][32 i + lane]; then every number is the sum over warps, in their order.
  float* const out = reinterpret_cast<float*>(shared);
#pragma unroll
  for (int s = 0; s < SUB; ++s)
#pragma unroll
    for (int t = 0; t < T; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[warp * F::kSums + 32 * ((s * T + t) * 4 + i) + lane] = sums[0][s][t][i] + sums[1][s][t][i];
  __syncthreads();
#pragma unroll
  for (int j = 0; j < (F::kSums + F::kThreads - 1) / F::kThreads; ++j) {
    const int e = threadIdx.x + j * F::kThreads, of_lane = e & 31, i = e >> 5 & 3, t = (e >> 7) % T, sub = (e >> 7) / T;
    if (e >= F::kSums) break;
    float sum = out[e];
#pragma unroll
    for (int w = 1; w < WARPS; ++w) sum += out[w * F::kSums + e];
    const int n = 16 * (first16 + sub) + of_lane / 4 + 8 * (i >> 1), m = 8 * t + 2 * (of_lane & 3) + (i & 1);
    if (n < args.n && m < args.m) args.y[int64_t(m) * args.n + n] = __float2bfloat16_rn(sum);
  }
}

}  // namespace w12
