"""Predicted against given, on logarithmic axes, as SVG."""
import math

COLORS = ["#1f77b4", "#d95f02", "#2ca02c", "#7570b3"]


def write(path, title, points, unit="cycles", lo=3, band=1.12, radius=3):
    """points: (given, predicted, series); axes start at 10**lo, dashed lines at a factor `band`."""
    size, pad = 420, 46
    hi = math.ceil(math.log10(max(max(p[0], p[1]) for p in points)))
    at = lambda v: (math.log10(max(v, 10 ** lo)) - lo) / (hi - lo) * size
    names = sorted({p[2] for p in points})
    color = {name: COLORS[i % len(COLORS)] for i, name in enumerate(names)}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{size + 2 * pad}" '
           f'height="{size + 2 * pad}" font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{pad}" y="20" font-size="14">{title}</text>',
           f'<g transform="translate({pad},{pad - 8})">',
           f'<rect width="{size}" height="{size}" fill="none" stroke="#999"/>']
    for d in range(lo, hi + 1):
        x = at(10 ** d)
        out.append(f'<path d="M{x:.0f} 0V{size}M0 {size - x:.0f}H{size}" stroke="#e5e5e5"/>'
                   f'<text x="{x - 8:.0f}" y="{size + 16}">1e{d}</text>'
                   f'<text x="-28" y="{size - x + 4:.0f}">1e{d}</text>')
    for factor, dash in ((1, ""), (band, "4 3"), (1 / band, "4 3")):
        s = math.log10(factor) / (hi - lo) * size
        out.append(f'<line x1="0" y1="{size - s:.1f}" x2="{size}" y2="{-s:.1f}" '
                   f'stroke="#666" stroke-dasharray="{dash}"/>')
    for given, got, series in points:
        out.append(f'<circle cx="{at(given):.1f}" cy="{size - at(got):.1f}" r="{radius}" '
                   f'fill="{color[series]}" fill-opacity=".65"/>')
    for i, name in enumerate(names):
        out.append(f'<circle cx="14" cy="{14 + 16 * i}" r="4" fill="{color[name]}"/>'
                   f'<text x="24" y="{18 + 16 * i}">{name}</text>')
    out.append(f'<text x="{size / 2 - 60:.0f}" y="{size + 34}">given ({unit}); dashed: '
               f'{band - 1:.0%}</text><text transform="translate(-34,{size / 2 + 40:.0f}) '
               f'rotate(-90)">predicted ({unit})</text></g></svg>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")
