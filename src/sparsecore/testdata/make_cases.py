#!/usr/bin/env python3
"""Writes engine_cases.txt: lookups and updates, and what NumPy says of them.

Expected values come from (sample, row, gain) triples of the whole batch and the whole table, without any of the
partitioning, so that the layout of the buffers is tested too. Values are small multiples of 1/8: sums are exact in any
order, and the engine must give the same bits.
"""
import pathlib

import numpy as np

PAD = 2**31 - 1
rng = np.random.default_rng(5)


def buffers(triples, devices, scs, batch, minibatches, room):
    """Row pointers, ids, samples, gains of each device. Buckets of minibatches: row mod their number, by owner's row."""
    total, per, part = devices * scs, max(devices * scs, 8), batch // scs
    out = []
    for d in range(devices):
        pointers = np.full(scs * per * max(minibatches, 1), 0, np.int64)
        ids, samples, gains = np.full(room, PAD), np.full(room, PAD), np.full(room, np.nan)
        at = 0
        for k in range(scs):
            if not minibatches:
                at = 0
            for m in range(max(minibatches, 1)):
                block = k * max(minibatches, 1) + m
                for g in range(total):
                    at = -(-at // 8) * 8
                    for s, r, w in sorted(triples, key=lambda t: (t[1], t[0])):
                        local = r // total
                        if (s // batch, s % batch // part, r % total) != (d, k, g) or (minibatches and local % minibatches != m):
                            continue
                        where = at + (0 if minibatches else k * (room // scs))
                        ids[where], samples[where], gains[where] = local, s % part, w
                        at += 1
                    pointers[block * per + g] = at
                pointers[block * per + total:(block + 1) * per] = at
        out.append((pointers, ids, samples, gains))
    return out


def sharded(table, devices, scs):
    """Row r is on SparseCore r mod N; a device holds the shards of its own one after the other."""
    n = devices * scs
    return [np.concatenate([table[d * scs + k::n] for k in range(scs)]) for d in range(devices)]


def quantise(x, low, high, buckets):
    f = np.float32
    scale = f((f(high) - f(low)) / f(buckets - 1))
    clipped = np.clip(x, f(low), f(high)).astype(f)
    return (np.rint(((clipped - f(low)).astype(f) / scale).astype(f)) * scale).astype(f) + f(low)


def eighths(*shape):
    return (rng.integers(-40, 40, size=shape) / 8).astype(np.float32)


def text(values):
    """Numbers; `v*n` is n times v."""
    words = []
    for word in (f"{v:.10g}" for v in np.asarray(values, np.float64).reshape(-1)):
        if words and words[-1][0] == word:
            words[-1][1] += 1
        else:
            words.append([word, 1])
    return " ".join(w if n == 1 else f"{w}*{n}" for w, n in words)


def case(out, op, devices, scs, rows, width, batch, count, minibatches=0, dtype="f32", quant=None, init=False):
    triples = {}
    for _ in range(count):
        s, r = int(rng.integers(devices * batch)), int(rng.integers(rows * devices) ** 2 // (rows * devices))
        triples[s, r] = float(rng.choice([0.5, 1, 2]))
    triples = [(s, r, w) for (s, r), w in triples.items()]
    room = -(-(count + 8 * devices * scs * max(minibatches, 1)) * scs // (8 * scs)) * 8 * scs
    table = eighths(rows * devices, width)
    stored, values = table, table
    if dtype == "bf16":
        pass  # multiples of 1/8 below 5 are exact
    elif dtype in ("s8", "u8"):
        low, high, buckets = quant
        level = rng.integers(0, buckets, size=table.shape)
        stored = level - (buckets // 2 if dtype == "s8" else 0)
        scale = np.float32((np.float32(high) - np.float32(low)) / np.float32(buckets - 1))
        values = (level.astype(np.float32) * scale + np.float32(low)).astype(np.float32)
    if quant and dtype in ("f32", "bf16"):
        values = quantise(table, *quant)
    low, high, buckets = quant or (0, 0, 0)
    out.append(f"case {op} {devices} {scs} {rows} {width} {batch} {room} {minibatches} {dtype} {low:g} {high:g} {buckets} {int(init)}")
    if op == "local":
        for d in range(devices):
            mine = [t for t in triples if t[0] // batch == d]
            pad = room - len(mine)
            for i, fill in ((1, PAD), (0, PAD), (2, np.nan)):
                column = [(t[0] % batch, t[1] % rows, t[2])[i] for t in mine]
                out.append(text(column + [fill] * pad))
            out.append(text(stored[d * rows:(d + 1) * rows]))
            want = np.zeros((batch, width), np.float32)
            for s, r, w in mine:
                want[s % batch] += values[d * rows + r % rows] * np.float32(w)
            out.append(text(want))
        return
    shards, devices_buffers = sharded(stored, devices, scs), buffers(triples, devices, scs, batch, minibatches, room)
    if op == "lookup":
        start = eighths(devices * batch, width) if init else np.zeros((devices * batch, width), np.float32)
        want = start.copy()
        for s, r, w in triples:
            want[s] += values[r] * np.float32(w)
        for d in range(devices):
            for b in devices_buffers[d]:
                out.append(text(b))
            out.append(text(shards[d]))
            if init:
                out.append(text(start[d * batch:(d + 1) * batch]))
            out.append(text(want[d * batch:(d + 1) * batch]))
        return
    # The test's optimizer: slot += gradient, table -= rate x slot.
    grad, slot, rate = eighths(devices * batch, width), eighths(rows * devices, width), 0.25
    sums, touched = np.zeros_like(table), np.zeros(len(table), bool)
    for s, r, w in triples:
        sums[r] += grad[s] * np.float32(w)
        touched[r] = True
    new_slot = np.where(touched[:, None], slot + sums, slot)
    new_table = np.where(touched[:, None], table - np.float32(rate) * new_slot, table)
    for d in range(devices):
        for b in devices_buffers[d]:
            out.append(text(b))
        out.append(text(grad[d * batch:(d + 1) * batch]))
        for t in (table, slot, new_table, new_slot):
            out.append(text(sharded(t, devices, scs)[d]))


def main():
    out = ["# make_cases.py wrote this."]
    case(out, "lookup", 1, 1, 8, 4, 2, 6)
    case(out, "lookup", 1, 2, 16, 8, 8, 20)
    case(out, "lookup", 2, 4, 16, 3, 8, 40)
    case(out, "lookup", 4, 2, 16, 1, 4, 30, minibatches=2)
    case(out, "lookup", 1, 4, 32, 16, 8, 24, minibatches=3)
    case(out, "lookup", 3, 2, 8, 21, 2, 12, init=True)
    case(out, "lookup", 1, 2, 4, 130, 4, 6)
    case(out, "lookup", 1, 2, 8, 32, 4, 0)
    case(out, "lookup", 1, 2, 16, 5, 8, 20, quant=(-2, 3, 21))
    case(out, "lookup", 2, 2, 8, 8, 4, 16, dtype="bf16")
    case(out, "lookup", 1, 2, 8, 9, 4, 16, dtype="bf16", quant=(-4, 4, 9))
    case(out, "lookup", 1, 2, 16, 8, 8, 20, dtype="s8", quant=(-1, 1.125, 18))
    case(out, "lookup", 2, 1, 8, 4, 4, 12, dtype="u8", quant=(0, 15.9375, 256))
    case(out, "local", 1, 2, 16, 8, 8, 20)
    case(out, "local", 2, 2, 8, 7, 4, 16)
    case(out, "update", 1, 1, 8, 4, 2, 6)
    case(out, "update", 1, 2, 16, 8, 8, 30)
    case(out, "update", 2, 4, 16, 3, 8, 60)
    case(out, "update", 4, 2, 8, 1, 4, 40, minibatches=2)
    case(out, "update", 1, 4, 16, 16, 8, 30, minibatches=3)
    case(out, "update", 3, 2, 8, 21, 2, 20)
    case(out, "update", 1, 2, 8, 32, 4, 0)
    path = pathlib.Path(__file__).with_name("engine_cases.txt")
    path.write_text("\n".join(out) + "\n")
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
