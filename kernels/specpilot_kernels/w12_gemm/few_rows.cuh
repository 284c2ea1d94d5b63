// Few rows of x: a block, or a cluster of two, computes 16 rows of W over all columns. Its warps take turns at the records,
// and their sums meet in the first block's shared memory. Many small blocks, plain loads and little code: what such a
// matrix loses, it loses before the first load, after the last, and where one multiprocessor has more blocks than another.
//
// A warp loads its own words of a record to registers (of W12 48 bytes a lane), two records or more ahead, and its own
// columns of x to shared memory; it waits for its own copies alone. K is a multiple of 64.
#pragma once
#include "fragments.cuh"

namespace w12 {

__device__ __forceinline__ void copy_x(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// T: groups of 8 rows of x. SPLIT: blocks of the cluster.
template <class Format, int T, int WARPS, int SPLIT>
struct FewRows {
  static constexpr int kThreads = 32 * WARPS, kAhead = Format::kAhead;
  static constexpr int kStage = 1024 * T;  // of x
  static constexpr int kWarp = kAhead * kStage + (Format::kHasEscapes ? kPatchBytes : 0);
  static constexpr int kSums = 16 * 8 * T;  // numbers a warp leaves
  static constexpr int kBytes = WARPS * kWarp + SPLIT * WARPS * 4 * kSums;
};

template <class Format, int T, int WARPS, int BLOCKS, int SPLIT>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) few_rows_product(const Arguments args) {
  using F = FewRows<Format, T, WARPS, SPLIT>;
  static_assert(BLOCKS * (F::kBytes + 1024 + 16) <= kSharedBytes);
  constexpr int kAhead = F::kAhead, kStep = SPLIT * WARPS;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t sums_are_here;
  const int lane = threadIdx.x & 31, rank = SPLIT > 1 ? int(blockIdx.x) % SPLIT : 0;
  const int warp = (threadIdx.x >> 5) * SPLIT + rank;  // of the cluster
  const int sixteen = int(blockIdx.x) / SPLIT, tile = sixteen / kRecordWarps, slice = sixteen % kRecordWarps;
  // The warp's records: from column `warp` on, every kStep-th.
  const int count = (args.k_tiles - warp + kStep - 1) / kStep;
  const int64_t first = args.order.record(tile, warp), step = int64_t(kStep) * args.order.step(tile);

  // What is small and waited for goes ahead of the first weights, which fill the memory's queues.
  auto load_slots = [&](int i) {  // of the records from i on, one a lane
    uint2 word = make_uint2(kNoEscape, kNoEscape);
    if (i + lane < count) word = load_slot(args.slots + (first + (i + lane) * step) * kRecordWarps + slice);
    return word;
  };
  uint2 first_words;
  if constexpr (Format::kHasEscapes) first_words = load_slots(0);
  typename Format::Row row;
  load_row(row, args, 16 * sixteen + lane / 4);

  const uint4* weights = args.records + first * (Format::kStride / 16) + Format::kWarpStride / 16 * slice + lane;
  typename Format::Words held[kAhead];
  auto load = [&](typename Format::Words& words) {
    Format::load(words, GlobalWords{weights}, lane);
    weights += step * (Format::kStride / 16);
  };
#pragma unroll
  for (int d = 0; d < kAhead; ++d)
    if (d < count) load(held[d]);

  const uint32_t signal = shared_address(&sums_are_here);
  if constexpr (SPLIT > 1) {
    const bool is_maker = rank == 0 && threadIdx.x == 0;
    if (is_maker) {
      ptx::barrier_init(signal, 1);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
    if (is_maker) ptx::barrier_expect(signal, 4 * kStep * F::kSums);
    __syncwarp();
    cluster_begins();
  }

  // x: 16-byte pieces, 8 a row, four rows at a time. Rows that x does not have hold anything: each comes to its own sums.
  const uint32_t mine = shared_address(shared) + (threadIdx.x >> 5) * F::kWarp, room = mine + kAhead * F::kStage;
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
  for (int d = 0; d < kAhead; ++d) {
    if (d < count) copy(d);
    ptx::commit_copies();
  }
  Slots slots;
  if constexpr (Format::kHasEscapes) slots.look(first_words, args);
  row.look();
  float sums[2][T][4] = {};  // even and odd steps apart, so that products wait less for each other
  const uint32_t x_from = mine + 128 * (lane & 7) + ((lane >> 3 ^ lane & 7) << 4);

#pragma unroll 1
  for (int base = 0; base < count; base += kAhead) {
#pragma unroll
    for (int d = 0; d < kAhead; ++d) {
      const int i = base + d;
      if (i >= count) break;
      uint32_t a[4][4];
      decode_record<Format>(a, held[d], row);
      if (i + kAhead < count) load(held[d]);
      row.correct(a);
      if constexpr (Format::kHasEscapes)
        if (slots.any(i)) patch(a, slots.of(i), args, lane, room);
      ptx::await_copies<kAhead - 1>();
      __syncwarp();
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int t = 0; t < T; ++t) {
          uint32_t b[4];
          ptx::read_fragments(b, (x_from ^ half << 6) + d * F::kStage + 1024 * t);
          ptx::warp_product(sums[0][t], a[2 * half], b[0], b[1]);
          ptx::warp_product(sums[1][t], a[2 * half + 1], b[2], b[3]);
        }
      __syncwarp();
      if (i + kAhead < count) copy(d);
      ptx::commit_copies();
    }
    if constexpr (Format::kHasEscapes) {
      static_assert(32 % kAhead == 0);
      if ((base + kAhead) % 32 == 0 && base + kAhead < count) slots.look(load_slots(base + kAhead), args);
    }
  }
  ptx::await_copies<0>();

  // [warp][t][lane][4] in the first block; then every number is the sum over warps, in their order.
  const uint32_t box = shared_address(shared) + WARPS * F::kWarp;
  if constexpr (SPLIT > 1) cluster_has_begun();
#pragma unroll
  for (int t = 0; t < T; ++t) {
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = sums[0][t][i] + sums[1][t][i];
    const uint32_t to = box + 4 * warp * F::kSums + 512 * t + 16 * lane;
    if constexpr (SPLIT > 1) send(to, signal, 0, v);
    else ptx::write16(to, make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])));
  }
  if constexpr (SPLIT > 1) {
    if (rank) return;
    ptx::barrier_wait_cluster(signal, 0);
  } else {
    __syncthreads();
  }
  const float* const out = reinterpret_cast<const float*>(shared + WARPS * F::kWarp);
#pragma unroll
  for (int j = 0; j < (F::kSums + F::kThreads - 1) / F::kThreads; ++j) {
    const int e = threadIdx.x + j * F::kThreads, i = e & 3, of_lane = e >> 2 & 31, t = e >> 7;
    if (e >= F::kSums) break;
    float sum = out[e];
#pragma unroll
    for (int w = 1; w < kStep; ++w) sum += out[w * F::kSums + e];
    const int n = 16 * sixteen + of_lane / 4 + 8 * (i >> 1);
    put(args, n, 8 * t + 2 * (of_lane & 3) + (i & 1), of(row, of_lane).result(i >> 1, sum) + bias_of(args, n));
  }
}

}  // namespace w12
