"""A small ResNet in PyTorch trained on Atoll, beside the same training on PyTorch's CPU.

  pip install "torch==2.9.0" "torch_xla==2.9.0" numpy pyyaml          # or torch_tpu==0.2.0, see docs/pytorch.md
  PJRT_DEVICE=TPU TPU_LIBRARY_PATH=/path/to/libatoll.so python examples/torch_resnet.py
  TPU_ACCELERATOR_TYPE=v6e-1 TORCH_DEVICE_BACKEND_AUTOLOAD=0 TPU_LIBRARY_PATH=/path/to/libatoll.so \\
    python examples/torch_resnet.py --client torch_tpu

Residual blocks with batch normalisation in three widths, momentum, a learning rate that falls. The images are noise with a bright
square in the quarter that is their class. Exit status 1: the losses differ by more than a hundredth.
"""
import argparse
import copy
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch_client import client_of, compare

CLASSES, SIDE, BATCH = 4, 32, 32


class Block(nn.Module):
  def __init__(self, width_in, width, stride):
    super().__init__()
    self.conv1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False)
    self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
    self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
    self.short = nn.Sequential()
    if stride != 1 or width_in != width:
      self.short = nn.Sequential(nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

  def forward(self, x):
    y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
    return F.relu(y + self.short(x))


def resnet():
  return nn.Sequential(
      nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
      Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES))


def images(step):
  torch.manual_seed(step)
  x, y = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH,))
  for i, quarter in enumerate(y.tolist()):
    row, column = 16 * (quarter // 2) + 4, 16 * (quarter % 2) + 4
    x[i, :, row:row + 8, column:column + 8] += 2
  return x, y


def train(model, device, end_step, steps):
  model = copy.deepcopy(model).to(device)
  optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
  schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
  losses, times = [], []
  for step in range(steps):
    start = time.time()
    x, y = (part.to(device) for part in images(step))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    schedule.step()
    end_step()
    losses.append(loss.item())
    times.append(time.time() - start)
  return losses, times


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--client", choices=["torch_xla", "torch_tpu"], default="torch_xla")
  parser.add_argument("--steps", type=int, default=12)
  options = parser.parse_args()
  device, end_step = client_of(options.client)
  torch.manual_seed(0)
  model = resnet()
  wanted, _ = train(model, "cpu", lambda: None, options.steps)
  losses, times = train(model, device, end_step, options.steps)
  return int(not compare(losses, wanted, times) < 1e-2)


if __name__ == "__main__":
  sys.exit(main())
