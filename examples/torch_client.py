"""What the PyTorch examples share: the client that they run on."""


def client_of(name):
  """The device, and what ends a step: torch_xla collects ops until it is told to run them."""
  if name == "torch_xla":
    import torch_xla
    return torch_xla.device(), torch_xla.sync
  from torch_tpu import _loader  # without a PCI device the package does not start by itself
  return _loader._init_device("tpu"), lambda: None


def compare(losses, wanted, times):
  """Prints the losses of each step beside those of the CPU; the largest difference."""
  for step, row in enumerate(zip(losses, wanted, times)):
    print("step {:3}: loss {:.5f}, on the CPU {:.5f}, {:.3f} s".format(step, *row))
  worst = max(abs(a - b) for a, b in zip(losses, wanted))
  print(f"largest difference {worst:.2e}")
  return worst
