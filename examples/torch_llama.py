"""A small Llama in PyTorch trained on Atoll, beside the same training on PyTorch's CPU.

  pip install "torch==2.9.0" "torch_xla==2.9.0" numpy pyyaml          # or torch_tpu==0.2.0, see docs/pytorch.md
  PJRT_DEVICE=TPU TPU_LIBRARY_PATH=/path/to/libatoll.so python examples/torch_llama.py
  TPU_ACCELERATOR_TYPE=v6e-1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 TPU_LIBRARY_PATH=/path/to/libatoll.so \\
    python examples/torch_llama.py --client torch_tpu [--compile]

Rotary embeddings, grouped queries, RMSNorm, SwiGLU, AdamW, gradient clipping. The text is a sum modulo the vocabulary,
which the model learns. Exit status 1: the losses differ by more than a thousandth.
"""
import argparse
import copy
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_client import client_of, compare

VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, LENGTH, BATCH = 64, 128, 2, 8, 2, 32, 8


class Attention(nn.Module):
  def __init__(self):
    super().__init__()
    self.head = WIDTH // HEADS
    self.q = nn.Linear(WIDTH, WIDTH, bias=False)
    self.kv = nn.Linear(WIDTH, 2 * KV_HEADS * self.head, bias=False)
    self.out = nn.Linear(WIDTH, WIDTH, bias=False)

  def forward(self, x, cos, sin):
    b, t, _ = x.shape

    def turn(y):
      low, high = y.chunk(2, -1)
      return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)
    q = self.q(x).view(b, t, HEADS, self.head).transpose(1, 2)
    k, v = self.kv(x).view(b, t, 2, KV_HEADS, self.head).permute(2, 0, 3, 1, 4)
    k, v = (y.repeat_interleave(HEADS // KV_HEADS, 1) for y in (turn(k), v))
    y = F.scaled_dot_product_attention(turn(q), k, v, is_causal=True)
    return self.out(y.transpose(1, 2).reshape(b, t, WIDTH))


class Layer(nn.Module):
  def __init__(self):
    super().__init__()
    self.norm1, self.norm2, self.attention = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH), Attention()
    self.gate, self.up = (nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
    self.down = nn.Linear(3 * WIDTH, WIDTH, bias=False)

  def forward(self, x, cos, sin):
    x = x + self.attention(self.norm1(x), cos, sin)
    y = self.norm2(x)
    return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
  def __init__(self):
    super().__init__()
    self.embedding = nn.Embedding(VOCABULARY, WIDTH)
    self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
    self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
    half = WIDTH // HEADS // 2
    angle = torch.outer(torch.arange(LENGTH), 10000.0 ** (-torch.arange(half) / half))
    self.register_buffer("cos", angle.cos())
    self.register_buffer("sin", angle.sin())

  def forward(self, tokens):
    x = self.embedding(tokens)
    for layer in self.layers:
      x = layer(x, self.cos, self.sin)
    return self.head(self.norm(x))


def text(step):
  """Each token is the sum of the two before it, modulo the vocabulary."""
  torch.manual_seed(step)
  tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
  for i in range(2, LENGTH + 1):
    tokens[:, i] = (tokens[:, i - 1] + tokens[:, i - 2]) % VOCABULARY
  return tokens


def train(model, device, end_step, steps, compile_with=None):
  model = copy.deepcopy(model).to(device)
  forward = torch.compile(model, backend=compile_with) if compile_with else model
  optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
  losses, times = [], []
  for step in range(steps):
    start = time.time()
    tokens = text(step).to(device)
    optimizer.zero_grad()
    before, after = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()  # torch_tpu compiles no views
    loss = F.cross_entropy(forward(before).flatten(0, 1), after)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    end_step()
    losses.append(loss.item())
    times.append(time.time() - start)
  return losses, times


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--client", choices=["torch_xla", "torch_tpu"], default="torch_xla")
  parser.add_argument("--steps", type=int, default=20)
  parser.add_argument("--compile", action="store_true", help="with torch.compile")
  options = parser.parse_args()
  device, end_step = client_of(options.client)
  torch.manual_seed(0)
  model = Llama()
  wanted, _ = train(model, "cpu", lambda: None, options.steps)
  compiler = {"torch_xla": "openxla", "torch_tpu": "tpu"}[options.client] if options.compile else None
  losses, times = train(model, device, end_step, options.steps, compiler)
  return int(not compare(losses, wanted, times) < 1e-3)


if __name__ == "__main__":
  sys.exit(main())
