// Few rows of x: a cluster of SPLIT blocks computes 16 or 32 rows of W over all columns. Its warps take turns at the
// records, and their sums meet in the first block's shared memory. Many small blocks, plain loads and little code: what such
// a matrix loses, it loses before the first load, after the last, and where one multiprocessor has more blocks than another.
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
template <int T, int SUB, int WARPS, int AHEAD, int SPLIT>
struct FewRows {
  static constexpr int kThreads = 32 * WARPS, kRows = 16 * SUB;
  static constexpr int kStage = 1024 * T;  // of x
  static constexpr int kWarp = AHEAD * kStage + kPatchBytes;
  static constexpr int kSums = kRows * 8 * T;  // numbers a warp leaves
  static constexpr int kBytes = WARPS * kWarp + SPLIT * WARPS * 4 * kSums;
};

template <int T, int SUB, int WARPS, int AHEAD, int BLOCKS, int SPLIT>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) w12_few_rows(const Arguments args) {
  using F = FewRows<T, SUB, WARPS, AHEAD, SPLIT>;
  constexpr int kStep = SPLIT * WARPS;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int lane = threadIdx.x & 31, rank = SPLIT > 1 ? int(blockIdx.x) % SPLIT : 0;
  const int warp = (threadIdx.x >> 5) * SPLIT + rank;  // of the cluster
  const int first16 = int(blockIdx.x) / SPLIT * SUB, tile = first16 / kWarpsOfRecord, slice = first16 % kWarpsOfRecord;
  const int64_t record0 = int64_t(tile) * args.k_tiles + warp;  // then every kStep-th
  const int count = (args.k_tiles - warp + kStep - 1) / kStep;
  const uint4* weights = args.records + record0 * (kRecordWords / 4) + 32 * slice + lane;
  uint4 held[AHEAD][SUB][3];
  auto load = [&](uint4 (&h)[SUB][3]) {
#pragma unroll
    for (int s = 0; s < SUB; ++s)
#pragma unroll
      for (int p = 0; p < 3; ++p) h[s][p] = load_weights(weights + 32 * s + p * (kPlaneWords / 4));
    weights += kStep * (kRecordWords / 4);
  };
#pragma unroll
  for (int d = 0; d < AHEAD; ++d)
    if (d < count) load(held[d]);
  if constexpr (SPLIT > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");

  // x: 16-byte pieces, 8 a row, four rows at a time. Rows that x does not have hold anything: each comes to its own sums.
  const uint32_t mine = shared_address(shared) + (threadIdx.x >> 5) * F::kWarp, room = mine + AHEAD * F::kStage;
  const int row0 = lane >> 3;
  const __nv_bfloat16* x = args.x + int64_t(row0) * args.k + warp * kRecordColumns + 8 * (lane & 7);
  const uint32_t x_to = mine + 128 * row0 + ((lane & 7 ^ row0) << 4);
  auto copy = [&](int d) {
#pragma unroll
    for (int j = 0; j < 2 * T; ++j)
      if (row0 + 4 * j < args.m) copy_x((x_to ^ (j & 1) << 6) + d * F::kStage + 512 * j, x + int64_t(4 * j) * args.k);
    x += kStep * kRecordColumns;
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
      words[s] = i + lane < count ? __ldg(args.slots + (record0 + (i + lane) * kStep) * kWarpsOfRecord + slice + s) : kNone;
      has[s] = __ballot_sync(kAll, words[s] != kNone);
      nearer[s].look(args, words[s], record0 + (i + lane) * kStep);
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
          patch(a[s], __shfl_sync(kAll, words[s], i & 31), args, record0 + i * kStep, slice + s, lane, room);
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

  // [warp][32 i + lane] in the first block; then every number is the sum over warps, in their order.
  float* const out = reinterpret_cast<float*>(shared + WARPS * F::kWarp);
  uint32_t to = ptx::shared_address(out + warp * F::kSums + lane);
  if constexpr (SPLIT > 1) {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // the first block has begun
    asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(to) : "r"(to));
  }
#pragma unroll
  for (int s = 0; s < SUB; ++s)
#pragma unroll
    for (int t = 0; t < T; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float sum = sums[0][s][t][i] + sums[1][s][t][i];
        const uint32_t at = to + 128 * ((s * T + t) * 4 + i);
        if constexpr (SPLIT > 1) asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(sum) : "memory");
        else asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(sum) : "memory");
      }
  if constexpr (SPLIT > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    if (rank) return;
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  } else {
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < (F::kSums + F::kThreads - 1) / F::kThreads; ++j) {
    const int e = threadIdx.x + j * F::kThreads, of_lane = e & 31, i = e >> 5 & 3, t = (e >> 7) % T, sub = (e >> 7) / T;
    if (e >= F::kSums) break;
    float sum = out[e];
#pragma unroll
    for (int w = 1; w < kStep; ++w) sum += out[w * F::kSums + e];
    const int n = 16 * (first16 + sub) + of_lane / 4 + 8 * (i >> 1), m = 8 * t + 2 * (of_lane & 3) + (i & 1);
    if (n < args.n && m < args.m) args.y[int64_t(m) * args.n + n] = __float2bfloat16_rn(sum);
  }
}

}  // namespace w12
