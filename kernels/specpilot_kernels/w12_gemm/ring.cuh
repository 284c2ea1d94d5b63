// More rows of x, and the largest matrices: one warp fills a ring in shared memory with bulk copies (the records of a
// row tile and the columns of x that belong to them, by a tensor map), the others, 16 rows of W each, decode and multiply:
// with mma.sync up to 16 rows of x, above by wgmma with the weights as register operand. Who multiplies waits for the
// copies, and at the end for other blocks' sums.
//
// Two ways to share records out:
// - Split: the blocks of a cluster take turns at the records of one row tile; every block adds a part of the sums.
// - Stream: all records, row tile by row tile, are shared out evenly among blocks that are all resident and no more than
//   row tiles, so that at most two blocks have records of one. A block first does those of the tile that it begins and does
//   not finish, and publishes these sums; the one that finishes the tile adds them.
// The order of every sum depends on the shape and the grid alone.
#pragma once
#include "fragments.cuh"
#include "group_product.cuh"

namespace w12 {

// The copying warp makes the barriers and goes on at once; the others wait for that. Full barriers count its one arrival,
// empty ones an arrival of every thread that multiplies.
template <int STAGES>
__device__ __forceinline__ void start_barriers(uint32_t full, int num_consumers, int num_threads, bool is_copying) {
  if (is_copying) {
    const int lane = threadIdx.x & 31;
    if (lane < 2 * STAGES)
      ptx::barrier_init(full + 8 * lane, lane < STAGES ? 1 : num_consumers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    __syncwarp();
    asm volatile("bar.arrive 2, %0;" ::"r"(num_threads) : "memory");
  } else {
    asm volatile("bar.sync 2, %0;" ::"r"(num_threads) : "memory");
  }
}

template <class Format>
__device__ __forceinline__ void copy_record(uint32_t to, const uint4* from, uint32_t barrier) {
#pragma unroll
  for (int i = 0; i < Format::kPieces; ++i)
    ptx::bulk_copy(to + i * (Format::kBytes / Format::kPieces), from + i * (Format::kStride / Format::kPieces / 16),
                   Format::kBytes / Format::kPieces, barrier);
}

// A flag of another block's warp says the launch's mark once its sums are there. It may hold anything before; after it has been
// seen it holds no mark, so that a replay of a graph, which has the same, does not see it too early.
__device__ __forceinline__ void publish(uint64_t* flag, uint64_t mark) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(flag), "l"(mark) : "memory");
}
__device__ __forceinline__ void await(uint64_t* flag, uint64_t mark) {
  uint64_t seen;
  do asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(flag) : "memory");
  while (seen != mark);
  *flag = 0;
}

// Fours of all sources that a block of a cluster gets at most: every rank gets `slots` from each.
constexpr int kMostRanks = 8;
__host__ __device__ constexpr int num_slots(int fours, int ranks) { return (fours + ranks - 1) / ranks; }
constexpr int most_slots(int fours) {
  int most = 0;
  for (int ranks = 1; ranks <= kMostRanks; ++ranks)
    if (ranks * num_slots(fours, ranks) > most) most = ranks * num_slots(fours, ranks);
  return most;
}

template <class Format, int N, int STAGES, int BLOCKS>
struct Ring {
  static_assert(2 * STAGES <= 32);
  static constexpr int kWarps = kRecordWarps, kConsumers = 32 * kWarps, kThreads = kConsumers + 32;
  static constexpr int kWeights = Format::kBytes;
  static constexpr int kStage = kWeights + N * kRowBytes;  // multiples of 1,024, as the swizzle of x wants
  static constexpr int kBytes = STAGES * kStage + (Format::kHasEscapes ? kWarps * kPatchBytes : 0);
  static constexpr int kFours = N / 8;  // of numbers, that a thread has
  // A cluster's sums have a place of their own where that fits, else that of the ring once all have read it.
  static constexpr int kMostBytes = (227 * 1024) / BLOCKS - 1024 - 8 * (2 * STAGES + 1);
  static constexpr bool kHasBox = kBytes + 16 * kConsumers * most_slots(kFours) <= kMostBytes;

  static constexpr int kBytesAtMost = kBytes + (kHasBox ? 16 * kConsumers * most_slots(kFours) : 0);
  static int bytes(int ranks) { return kBytes + (kHasBox && ranks > 1 ? 16 * kConsumers * ranks * num_slots(kFours, ranks) : 0); }
};

template <class Format, int N, int STAGES, int BLOCKS, bool STREAM>
__global__ void __launch_bounds__(Ring<Format, N, STAGES, BLOCKS>::kThreads, BLOCKS)
    ring_product(const Arguments args, const __grid_constant__ CUtensorMap x_map) {
  using R = Ring<Format, N, STAGES, BLOCKS>;
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t barriers[2 * STAGES + 1];  // full, empty, sums
  constexpr bool kByWarps = N <= 16;
  const uint32_t ring = shared_address(shared), full = shared_address(barriers), empty = full + 8 * STAGES, sums_are_here = empty + 8 * STAGES;
  const int lane = threadIdx.x & 31, warp = warp_index();
  // Its first use would otherwise wait for it.
  if (threadIdx.x == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&x_map) : "memory");

  // The block's records: `count`, of which the first `length` belong to row tile `last`, from column `from` on. A stream goes
  // from its last row tile to its first: what others wait for comes first, what waits for others last.
  int rank = 0, ranks = 1, first, last, from, length, count, first_from = 0;
  if constexpr (STREAM) {
    const int begin = args.start(blockIdx.x), end = args.start(blockIdx.x + 1);
    count = end - begin;
    first = begin / args.k_tiles, first_from = begin - first * args.k_tiles;
    last = (end - 1) / args.k_tiles, from = last == first ? first_from : 0, length = end - last * args.k_tiles - from;
  } else {
    rank = ptx::cluster_rank();
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(ranks));
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(last));
    first = last, from = rank, count = length = (args.k_tiles - rank + ranks - 1) / ranks;
  }

  start_barriers<STAGES>(full, R::kConsumers, R::kThreads, warp == R::kWarps);
  if constexpr (!STREAM) {
    if (ranks > 1) {
      if (threadIdx.x == 0) {
        ptx::barrier_init(sums_are_here, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        ptx::barrier_expect(sums_are_here, 16 * R::kConsumers * ranks * ((R::kFours - rank + ranks - 1) / ranks));
      }
      __syncwarp();
      cluster_begins();
    }
  }

  if (warp == R::kWarps) {
    if (lane) return;
    int tile = last, column = from, left = length, stage = 0, parity = 1;
    auto next_stage = [&] {
      if (++stage == STAGES) stage = 0, parity ^= 1;
    };
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      ptx::barrier_wait(empty + 8 * stage, parity);
      const uint32_t at = ring + stage * R::kStage, barrier = full + 8 * stage;
      ptx::barrier_expect(barrier, R::kStage);
      copy_record<Format>(at, args.records + args.order.record(tile, column) * (Format::kStride / 16), barrier);
      // Rows and columns outside x arrive as zeros.
      ptx::tile_copy(at + R::kWeights, &x_map, column * kRecordColumns, 0, barrier);
      next_stage();
      column += ranks;
      if (STREAM && --left == 0) --tile, column = tile == first ? first_from : 0, left = args.k_tiles - column;
    }
    return;
  }

  const uint32_t room = ring + STAGES * R::kStage + warp * kPatchBytes;
  const uint32_t my_weights = Format::kWarpBytes * warp + 16 * lane;
  uint32_t stage = 0, parity = 0, at = ring;
  auto next_stage = [&] {
    at += R::kStage;
    if (++stage == STAGES) stage = 0, parity ^= 1, at = ring;
  };

  // Slot words of the block's records, 32 at a time, the next 32 on their way; and what is known of the next tile's rows.
  uint2 next_words;
  auto load_slots = [&](int i) {
    next_words = make_uint2(kNoEscape, kNoEscape);
    if (i + lane >= count) return;
    int tile = last, column = from + (i + lane) * ranks;
    if (STREAM && i + lane >= length) {
      const int after = i + lane - length, down = after / args.k_tiles;
      tile = last - 1 - down, column = after - down * args.k_tiles + (tile == first ? first_from : 0);
    }
    next_words = load_slot(args.slots + args.order.record(tile, column) * kRecordWarps + warp);
  };
  typename Format::Row row, next_row;
  auto load_next_row = [&](int tile) {
    load_row(next_row, args, tile * kRecordRows + 16 * warp + lane / 4);
  };
  if constexpr (Format::kHasEscapes) load_slots(0);
  load_next_row(last);
  Slots slots;
  float acc[N / 8][4];
  int done = 0;

  // The next `records` records, all of one row tile.
  auto run = [&](int tile, int records) {
    row = next_row;
    row.look();
    if (STREAM && tile > first) load_next_row(tile - 1);
    float odd_sums[kByWarps ? N / 8 : 1][4] = {};  // even and odd steps apart, so that few products wait less for each other
#pragma unroll
    for (int i = 0; i < N / 2; ++i) acc[i / 4][i % 4] = 0;
    uint32_t behind = 0;  // barrier of the stage whose products may still run

    auto one = [&](int i, uint32_t (&a)[4][4]) {
      const int record = done + i;
      if (Format::kHasEscapes && (record & 31) == 0) {
        slots.look(next_words, args);
        load_slots(record + 32);
      }
      ptx::barrier_wait(full + 8 * stage, parity);
      typename Format::Words words;
      Format::load(words, ptx::SharedWords{at + my_weights}, lane);
      decode_record<Format>(a, words, row);
      row.correct(a);
      if constexpr (Format::kHasEscapes)
        if (slots.any(record)) patch(a, slots.of(record), args, lane, room);
      const uint32_t x = at + R::kWeights;
      if constexpr (kByWarps) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int t = 0; t < N / 8; ++t) {
            uint32_t numbers[4];
            read_x(numbers, x + 1024 * t, lane, half);
            ptx::warp_product(acc[t], a[2 * half], numbers[0], numbers[1]);
            ptx::warp_product(odd_sums[t], a[2 * half + 1], numbers[2], numbers[3]);
          }
        ptx::barrier_arrive_for_copy(empty + 8 * stage);
      } else {
        product_fence();
        const uint64_t numbers = describe(x);
#pragma unroll
        for (int s = 0; s < 4; ++s) GroupProduct<N>::run(acc, a[s], numbers + 2 * s);
        product_commit();
        product_wait<1>();  // the record before is done: its stage is free, and so are its registers
        if (i) ptx::barrier_arrive_for_copy(behind);
        behind = empty + 8 * stage;
      }
      next_stage();
    };
    if constexpr (kByWarps) {
      uint32_t a[4][4];
#pragma unroll 1
      for (int i = 0; i < records; ++i) one(i, a);
#pragma unroll
      for (int i = 0; i < N / 2; ++i) acc[i / 4][i % 4] += odd_sums[i / 4][i % 4];
    } else {
      uint32_t even[4][4], odd[4][4];  // one is written while the tensor cores read the other
#pragma unroll 1
      for (int i = 0; i < records; i += 2) {
        one(i, even);
        if (i + 1 == records) break;
        one(i + 1, odd);
      }
      product_wait<0>();
      if (records) ptx::barrier_arrive_for_copy(behind);
    }
    done += records;
  };
  // The four numbers t of the thread to y; bias of its two columns.
  auto put_four = [&](int tile, int t, const float (&v)[4], const float (&bias)[2]) {
    const int n = (tile * R::kWarps + warp) * 16 + lane / 4, m = 8 * t + 2 * (lane & 3);
#pragma unroll
    for (int i = 0; i < 4; ++i) put(args, n + 8 * (i >> 1), m + (i & 1), row.result(i >> 1, v[i]) + bias[i >> 1]);
  };
  auto load_bias = [&](int tile, float (&bias)[2]) {
    const int n = (tile * R::kWarps + warp) * 16 + lane / 4;
    bias[0] = bias_of(args, n), bias[1] = bias_of(args, n + 8);
  };

  auto put_all = [&](int tile) {
    float bias[2];
    load_bias(tile, bias);
#pragma unroll
    for (int t = 0; t < R::kFours; ++t) put_four(tile, t, acc[t], bias);
  };

  if constexpr (!STREAM) {
    run(last, count);
    if (ranks == 1) return put_all(last);
    float bias[2];
    load_bias(last, bias);
    // Fours t to block t % ranks, [source][slot][thread] there, which adds them, sources ascending.
    cluster_has_begun();
    if constexpr (!R::kHasBox) ptx::cluster_meet();  // all stages of all blocks have been read
    const uint32_t box = R::kHasBox ? ring + R::kBytes : ring;
    const int num = num_slots(R::kFours, ranks);
    uint32_t to = box + 16 * (rank * num * R::kConsumers + threadIdx.x);
    int owner = 0;
#pragma unroll
    for (int t = 0; t < R::kFours; ++t) {
      send(to, sums_are_here, owner, acc[t]);
      if (++owner == ranks) owner = 0, to += 16 * R::kConsumers;
    }
    ptx::barrier_wait_cluster(sums_are_here, 0);
    uint32_t at_sums = box + 16 * threadIdx.x;
    for (int t = rank; t < R::kFours; t += ranks, at_sums += 16 * R::kConsumers) {
      float v[kMostRanks][4];
#pragma unroll
      for (int r = 0; r < kMostRanks; ++r)
        if (r < ranks) {
          const uint4 four = ptx::read16(at_sums + r * num * 16 * R::kConsumers);
          v[r][0] = __uint_as_float(four.x), v[r][1] = __uint_as_float(four.y), v[r][2] = __uint_as_float(four.z), v[r][3] = __uint_as_float(four.w);
        }
#pragma unroll
      for (int r = 1; r < kMostRanks; ++r)
        if (r < ranks)
#pragma unroll
          for (int i = 0; i < 4; ++i) v[0][i] += v[r][i];
      put_four(last, t, v[0], bias);
    }
  } else {
    // What waits for another block stands behind the loop: lanes part there, and in a loop with such a place the compiler
    // keeps no address of the rings in uniform registers.
#pragma unroll 1
    for (int tile = last;; --tile) {
      const int column = tile == first ? first_from : 0, records = tile == last ? length : args.k_tiles - column;
      run(tile, records);
      if (column + records < args.k_tiles) {  // for the next block
        float4* const out = args.partials + int64_t(blockIdx.x) * R::kFours * R::kConsumers + threadIdx.x;
#pragma unroll
        for (int t = 0; t < R::kFours; ++t) __stcg(out + t * R::kConsumers, make_float4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
        __syncwarp();
        if (lane == 0) publish(args.flags + blockIdx.x * R::kWarps + warp, args.mark);
        if (tile == first) return;  // never: a block has as many records as a row tile at least, so it ends another one
        continue;
      }
      if (tile == first) break;
      put_all(tile);
    }
    if (first_from) {  // of the block before
      if (lane == 0) await(args.flags + (blockIdx.x - 1) * R::kWarps + warp, args.mark);
      __syncwarp();
      const float4* const sums = args.partials + int64_t(blockIdx.x - 1) * R::kFours * R::kConsumers + threadIdx.x;
#pragma unroll
      for (int t = 0; t < R::kFours; ++t) {
        const float4 v = __ldcg(sums + t * R::kConsumers);
        acc[t][0] += v.x, acc[t][1] += v.y, acc[t][2] += v.z, acc[t][3] += v.w;
      }
    }
    put_all(first);
  }
}

}  // namespace w12
