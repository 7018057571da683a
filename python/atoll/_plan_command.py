"""`atoll plan model.py`: python -m atoll._plan_command."""

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

# A plan needs no chips, and JAX is to start none.
os.environ["JAX_PLATFORMS"] = "cpu"

from atoll import _plan, _plan_report, _plan_space  # noqa: E402


def parser() -> argparse.ArgumentParser:
  """The command's arguments."""
  p = argparse.ArgumentParser(prog="atoll plan", description="searches mesh, sharding rules, rematerialisation and "
                              "microbatches for a training step (docs/plan.md)")
  p.add_argument("model", help="model.py, whose plan() returns an atoll.Plan; model.py:NAME calls NAME()")
  p.add_argument("--target", default="v5p", help="v5p, v5e, v6e, ..., or a slice: v5p:4x4x8 (%(default)s)")
  p.add_argument("--chips", help="16..512 (powers of two), 16,64 or 256")
  p.add_argument("--prices", help="a JSON file: chip -> US dollars of a chip and hour")
  p.add_argument("--budget", type=float, default=150, help="seconds for the search (%(default)s)")
  p.add_argument("--memory-share", type=float, default=0.95, help="of a chip's memory that may be used (%(default)s)")
  p.add_argument("--json", action="store_true", help="everything as JSON")
  return p


def load(model: str) -> _plan_space.Plan:
  """The plan of model.py or model.py:NAME."""
  path, _, name = model.partition(":")
  name = name or "plan"
  if not Path(path).is_file():
    raise ValueError(f"no file {path}")
  spec = importlib.util.spec_from_file_location("atoll_plan_model", path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  sys.path.insert(0, str(Path(path).resolve().parent))
  spec.loader.exec_module(module)
  if not callable(getattr(module, name, None)):
    raise ValueError(f"{path} has no function {name}\nhint: def {name}(): return atoll.Plan(...)")
  plan = getattr(module, name)()
  if not isinstance(plan, _plan_space.Plan):
    raise ValueError(f"{path}: {name}() returns a {type(plan).__name__}, no atoll.Plan")
  return plan


def prices(path: str | None) -> dict:
  """The table of prices: ours, or the user's."""
  if not path:
    return _plan.PRICES
  try:
    table = json.loads(Path(path).read_text())
  except (OSError, ValueError) as e:
    raise ValueError(f"--prices={path}: {e}") from None
  if not isinstance(table, dict) or not all(isinstance(v, (int, float)) and v >= 0 for v in table.values()):
    raise ValueError(f'--prices={path}: not a table of prices\nhint: {{"v5p": 4.2, "v6e": 2.7}}')
  return table


def asked(argv=None) -> tuple:
  """The arguments, and the machines that they name. ValueError says what is wrong with them."""
  args = parser().parse_args(argv)
  if (":" in args.target) == bool(args.chips):
    raise ValueError("how many chips?\nhint: either --target=v5p --chips=16..512, or a slice: --target=v5p:4x4x8")
  if not args.budget > 0 or not 0 < args.memory_share <= 1:
    raise ValueError("--budget is above 0, --memory-share above 0 and at most 1")
  table = prices(args.prices)
  counts = _plan_space.counts_of(args.chips) if args.chips else [None]
  return args, [_plan.machine_of(args.target, n, table) for n in counts]


def run(args, machines) -> None:
  """The search and its report. ValueError says what is wrong with the model, or that nothing fits."""
  shows = sys.stderr.isatty()

  def say(text):
    print(f"\r\033[K{text}" if shows else text, end="" if shows else "\n", file=sys.stderr, flush=True)

  search = _plan.Search(load(args.model), say)
  walls = [int(m.memory * args.memory_share) for m in machines]
  all_found = [search.run(m, wall, args.budget / len(machines)) for m, wall in zip(machines, walls)]
  if shows:
    print("\r\033[K", end="", file=sys.stderr)
  if args.json:
    print(json.dumps(_plan_report.as_json(search, all_found, walls), indent=1))
  else:
    print(_plan_report.text(search, all_found, walls), end="")
  if not any(f.results for f in all_found):
    raise ValueError("nothing fits\nhint: more chips, more microbatches, or rules that cut more")


def main() -> None:
  """Errors of the user's are lines, not traces. Exit status: 1 for a model that is refused or fits nowhere, 2 for wrong usage."""
  usage = True
  try:
    args, machines = asked()
    usage = False
    run(args, machines)
  except ValueError as e:
    print(f"atoll plan: {e}", file=sys.stderr)
    sys.exit(2 if usage else 1)


if __name__ == "__main__":
  main()
