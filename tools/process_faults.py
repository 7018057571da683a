"""Harms the processes of jobs and looks whether the others notice, in time, and are right.

  process_faults.py --library=build/release/libatoll.so [KIND...] [--count=N] [--seed=N]

  kill       a process is killed (SIGKILL) at any moment of a training loop, over every wire, and under
             jax.distributed.initialize with jax_enable_recoverability: the others get DATA_LOSS within five
             seconds, had only right losses, and go on with who is left
  notice     how long a kill (of a process that holds 4 GiB), a stop (SIGSTOP) and a cut cable stay unnoticed
  stop       a process is stopped within all-reduces of 64 MiB, and goes on ten seconds later: it gets an error,
             the others DATA_LOSS, and no byte of anybody's results is wrong, then or later
  strangers  connections of all kinds while the processes meet and while they compute change neither the results
             nor, much, the time
  imposters  who has another token, and who repeats what a process said, gets not a byte and changes nothing
  tamper     what travels over TCP is changed, left out or repeated: DATA_LOSS, and no wrong result
  lost       programs are compiled and launched, and arrays put, on devices of a process that is lost: the calls
             succeed, and the results say DATA_LOSS, which process and which program
  back       a process is killed and started again, over every wire and under jax.distributed.initialize: the others
             get DATA_LOSS, one that was idle meanwhile exactly once, and then all of them compute together
  errors     what is the user's mistake never looks like the loss of a process

Prints a line for each kind, and what failed; ends with 1 then. --sample runs a few of each.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import process_errors as errors
import process_jobs as jobs
import process_network as network

WIRES = ("auto", "messages", "tcp")
GRACE = 5.0  # seconds until everybody has ended
SLACK = 5.0  # more of them in samples, which run beside other tests
MEET = 90
STEPS = 60
WIDTHS = (16, 2048)  # gradients of 2 KiB and of 256 KiB


class Tally:
  """What was run of one kind, what failed, and times by name."""

  def __init__(self, name, total):
    self.name, self.total = name, total
    self.run, self.failed = 0, []
    self.times = collections.defaultdict(list)
    self.counts = collections.Counter()
    self.began = time.monotonic()

  def one(self, what, faults):
    self.run += 1
    self.failed += [f"{what}: {f}" for f in faults]
    for f in faults:
      print(f"  {self.name}: {what}: {f}", flush=True)
    if sys.stderr.isatty() or self.run % 20 == 0:
      print(f"  {self.name}: {self.run} of {self.total}, {len(self.failed)} faults", file=sys.stderr, flush=True)

  def line(self):
    times = "; ".join(f"{name}: median {statistics.median(t) * 1000:.0f} ms, at most {max(t) * 1000:.0f} ms of {len(t)}"
                      for name, t in sorted(self.times.items()) if t)
    counts = ", ".join(f"{n} {name}" for name, n in sorted(self.counts.items()))
    return (f"{self.name}: {self.run} runs, {len(self.failed)} faults in {time.monotonic() - self.began:.0f} s"
            + "".join(f"; {t}" for t in (counts, times) if t))


@contextlib.contextmanager
def new_folder():
  """One that the processes leave in place when they end, which are forks of this one."""
  folder = pathlib.Path(tempfile.mkdtemp(prefix="atoll-faults-"))
  try:
    yield folder
  finally:
    shutil.rmtree(folder)


# ---- What must hold
def look_at(process, i, victim, harmed, limit, sample=False):
  """Faults of a process that goes on without the victim: not told, too late, or of something else."""
  error = process.find("error")
  if process.wrong_end():
    return []  # the job's end tells
  if not error:
    return [f"process {i} got no error: {process.said[-1:]} {process.printed()[-300:]}"]
  if "DATA_LOSS" not in error["text"] or f"process {victim} is lost" not in error["text"]:
    return [f"process {i} got another error: {error['text'][:400]}"]
  late = error["at"] - harmed
  return [f"process {i} was told after {late:.3f} s"] if late > limit + sample * SLACK else []


def wrongs(job):
  return [f"process {i} was wrong: {s}" for i, p in enumerate(job.processes) for s in p.said
          if s["event"] in ("wrong", "stuck")]


def look_at_all(job, victim, harmed, ends, limit, sample):
  return ends + wrongs(job) + [f for i, p in enumerate(job.processes) if i != victim
                               for f in look_at(p, i, victim, harmed, limit, sample)]


def delays(job, victim, harmed):
  return [p.find("error")["at"] - harmed for i, p in enumerate(job.processes) if i != victim and p.find("error")]


def train_job(env, width, losses, places=None, **more):
  return jobs.Job(jobs.train, env, {"width": width, "steps": STEPS, "losses": losses and losses[width], **more}, places)


def known_losses():
  """Of one process that has all devices, for each width."""
  known = {}
  for width in WIDTHS:
    job = train_job([{}], width, None, laps=1)
    faults = job.end(120)
    end = job.processes[0].find("end")
    if faults or not end:
      raise SystemExit(f"one process alone does not train: {faults}")
    known[width] = end["losses"]
  return known


def by_wire(wire, count, **env):
  return jobs.through_jax(count, **env) if wire == "jax" else jobs.addresses(jobs.free_ports(count), wire, **env)


# ---- Kinds
def run_kill(tally, draw, losses, sample):
  for i in range(tally.total):
    wire, count = (*WIRES, "jax")[i % 4], draw.choice((2, 4, 4))
    width, ahead = draw.choice(WIDTHS), draw.choice((0, 0, 3, 40))
    victim = draw.randrange(wire == "jax", count)
    job = train_job(by_wire(wire, count), width, losses, ahead=ahead, lost=victim)
    what = f"{wire}, process {victim} of {count}, width {width}, {ahead} ahead"
    if not job.all_said("ready", MEET):
      tally.one(what, job.end(1) + ["they did not meet"])
      continue
    job.until(lambda: False, draw.random() * 0.4)
    harmed = job.processes[victim].signal(signal.SIGKILL)
    ends = job.end(GRACE + sample * SLACK + (10 if wire == "jax" else 0))  # JAX waits for who is lost at the end
    tally.one(what, look_at_all(job, victim, harmed, ends, GRACE, sample))
    tally.times[wire] += delays(job, victim, harmed)


def run_back(tally, draw, losses, sample):
  for i in range(tally.total):
    wire, count = (*WIRES, "jax")[i % 4], draw.choice((2, 4))
    victim = draw.randrange(wire == "jax", count)
    idle = draw.choice([None, *(k for k in range(count) if k != victim)])
    env = by_wire(wire, count)
    what = f"{wire}, process {victim} of {count}, process {idle} idle"
    job = jobs.Job(jobs.come_back, env, {"lost": victim, "idle": idle})
    if not job.all_said("ready", MEET):
      tally.one(what, job.end(1) + ["they did not meet"])
      continue
    job.until(lambda: False, draw.random() * 0.4)
    harmed = job.processes[victim].signal(signal.SIGKILL)
    job.all_said("error", GRACE + SLACK, but=[p for k, p in enumerate(job.processes) if k in (victim, idle)])
    job.add({**env[victim], "BACK": "1"})
    met = job.until(lambda: job.processes[-1].find("back"), MEET)
    tally.times[wire].append(time.monotonic() - harmed)
    if idle is not None:
      job.processes[idle].tell("go on")
    ends = job.end(MEET)
    if not job.processes[-1].find("back"):
      ends.append(f"who came back did not meet the others: {job.processes[-1].printed()[-400:]} {met}")
    early = [p for k, p in enumerate(job.processes) if k not in (victim, idle, count)]
    for p in early:
      ends += look_at(p, job.processes.index(p), victim, harmed, GRACE, sample)
    if idle is not None and (job.processes[idle].find("end") or {}).get("errors") != 1:
      ends.append(f"who was idle was not told once: {job.processes[idle].said}")
    tally.one(what, ends + wrongs(job))


LIMITS = {"kill, auto": 0.05, "kill, tcp": 1.0, "stop, auto": 2.0, "stop, tcp": 2.0, "cut": 2.0}


def run_notice(tally, draw, losses, sample):
  hold = 256 << 20 if sample else 4 << 30
  for i in range(tally.total):
    name = list(LIMITS)[i % len(LIMITS)]
    if name == "cut":
      cut_a_cable(tally, draw, losses, sample)
      continue
    job = train_job(by_wire(name.split(", ")[1], 2), 16, losses, lost=1, hold=hold)
    if not job.all_said("ready", MEET):
      tally.one(name, job.end(1) + ["they did not meet"])
      continue
    job.until(lambda: False, 0.1 + draw.random() * 0.2)
    harmed = job.processes[1].signal(signal.SIGKILL if "kill" in name else signal.SIGSTOP)
    job.all_said("error", GRACE, but=job.processes[1:])
    job.processes[1].signal(signal.SIGKILL)
    tally.one(name, look_at_all(job, 1, harmed, job.end(GRACE + SLACK), LIMITS[name], sample))
    tally.times[name] += delays(job, 1, harmed)


def cut_a_cable(tally, draw, losses, sample):
  cable = network.Cable(os.getpid() % 100000)
  with new_folder() as folder:
    token = folder / "token"
    token.touch(0o600)
    token.write_text(f"{draw.getrandbits(256):064x}")
    try:
      if not cable.make():
        tally.counts["cuts left out (they need root and ip)"] += 1
        return
      env = [{"TPU_PROCESS_ADDRESSES": "10.213.79.1:7201,10.213.79.2:7202", "CLOUD_TPU_TASK_ID": str(i),
              "ATOLL_POD_TRUSTED_NETWORK": "1", "ATOLL_POD_TOKEN_FILE": str(token)} for i in range(2)]
      job = train_job(env, 16, losses, cable.places)
      if not job.all_said("ready", MEET):
        return tally.one("cut", job.end(1) + ["they did not meet"])
      job.until(lambda: False, 0.1 + draw.random() * 0.2)
      harmed = cable.cut()
      ends = job.end(GRACE + SLACK)
      told = [f for i, p in enumerate(job.processes) for f in look_at(p, i, 1 - i, harmed, LIMITS["cut"], sample)]
      tally.one("cut", ends + wrongs(job) + told)
      tally.times["cut"] += delays(job, None, harmed)
    finally:
      cable.remove()


def run_stop(tally, draw, losses, sample):
  """Several jobs at a time: they sleep most of it."""
  size, rest = (4 << 20, 2.2) if sample else (64 << 20, 10.0)
  for i in range(tally.total):
    wire, count = WIRES[i % 3], draw.choice((2, 2, 4))
    victim, ahead = draw.randrange(count), draw.choice((1, 3))
    what = f"{wire}, process {victim} of {count}, {ahead} ahead"
    job = jobs.Job(jobs.add_large, by_wire(wire, count), {"bytes": size, "ahead": ahead})
    stopped = job.processes[victim]
    if not job.all_said("ready", MEET):
      tally.one(what, job.end(1) + ["they did not meet"])
      continue
    job.until(lambda: False, 0.3 + draw.random())
    harmed = stopped.signal(signal.SIGSTOP)
    job.all_said("error", GRACE, but=[stopped])
    for p in job.processes:
      p.tell("look")
    job.until(lambda: False, harmed + rest - time.monotonic())
    stopped.signal(signal.SIGCONT)
    met = job.all_said("error", 20) and job.all_said("looked", 20)
    for p in job.processes:  # once more, now that the other one has gone on; then they end
      p.tell("look")
      p.tell("")
    faults = look_at_all(job, victim, harmed, job.end(20), 4.0, sample)
    if not met or not stopped.find("error"):
      faults.append(f"who was stopped got no error: {stopped.said[-1:]} {stopped.printed()[-300:]}")
    tally.one(what, faults)
    tally.times[f"{wire}, the others"] += delays(job, victim, harmed)


def finish(job, seconds):
  """Faults of a job that nothing may happen to, and how long it computed."""
  faults = job.end(seconds)
  began, ended = (max((p.find(e) or {"at": 0})["at"] for p in job.processes) for e in ("ready", "end"))
  faults += wrongs(job) + [f"process {i} got an error: {p.find('error')['text'][:300]}"
                           for i, p in enumerate(job.processes) if p.find("error")]
  return faults, ended - began


def run_strangers(tally, draw, losses, sample):
  count, laps = (30, 20) if sample else (1000, 150)
  for i in range(tally.total):
    wire = WIRES[i % 3]
    _, quiet = finish(train_job(by_wire(wire, 4), 16, losses, laps=laps), 300)
    ports = jobs.free_ports(4)
    env = jobs.addresses(ports, wire)
    job = train_job(env[:3], 16, losses, laps=laps)  # the last one comes once half of the strangers have been there
    crowd = jobs.Job(network.be_strangers, [{}], {"ports": ports, "count": count, "pause": 0.0 if sample else 0.001})
    crowd.all_said("half", 300)
    job.add(env[3])
    faults, took = finish(job, 300)
    faults += crowd.end(300)
    end = crowd.processes[0].find("end") or {"came": 0, "refused": 0, "heard": 1}
    if end["heard"]:
      faults.append(f"strangers heard {end['heard']} bytes")
    tally.counts["connections"] += end["came"]
    tally.counts["knocks at closed doors"] += end["refused"]
    tally.times[f"{wire}, quiet"].append(quiet)
    tally.times[f"{wire}, among strangers"].append(took)
    tally.one(wire, faults)


def run_imposters(tally, draw, losses, sample):
  for i in range(tally.total):
    wire = WIRES[i % 3]
    with new_folder() as folder:
      tally.one(f"{wire}, another token", hear_another_token(wire, draw, losses, folder))
    with new_folder() as folder:
      tally.one("repeats", hear_repeats(tally, losses, folder))


def hear_another_token(wire, draw, losses, folder):
  """A process of Atoll that has the place, but not the token."""
  tokens = []
  for i in range(2):
    tokens.append(folder / str(i))
    tokens[i].touch(0o600)
    tokens[i].write_text(f"{draw.getrandbits(256):064x}")
  ports, (between,) = jobs.free_ports(4), jobs.free_ports(1)
  env = jobs.addresses(ports, wire, ATOLL_POD_TOKEN_FILE=str(tokens[0]))
  way = jobs.Job(network.stand_between, [{}], {"listen": between, "port": ports[0], "count": True})
  way.all_said("ready", 10)
  job = train_job(env[:3], 16, losses, laps=3)
  bad = jobs.addresses([between, *ports[1:3], *jobs.free_ports(1)], wire, ATOLL_POD_TOKEN_FILE=str(tokens[1]))[3]
  imposter = train_job([bad], 16, losses, laps=1)
  way.until(lambda: way.processes[0].find("ended"), 20)
  faults = [] if way.processes[0].find("ended") else ["the imposter did not come"]
  faults += [f"the imposter heard {s['heard']} bytes" for s in way.processes[0].said if s.get("heard")]
  imposter.processes[0].signal(signal.SIGKILL)
  way.processes[0].signal(signal.SIGKILL)
  job.add(env[3])
  more, _ = finish(job, 60)
  return faults + more + imposter.end(5) + way.end(5)


def hear_repeats(tally, losses, folder):
  """What process 1 says to process 0 is recorded and said again to all while process 3 is awaited, and later."""
  ports, (between,) = jobs.free_ports(4), jobs.free_ports(1)
  env = jobs.addresses(ports, "tcp")
  way = jobs.Job(network.stand_between, [{}], {"listen": between, "port": ports[0], "folder": str(folder)})
  way.all_said("ready", 10)
  job = train_job(env[:1], 16, losses, laps=100)
  job.add({**env[1], "TPU_PROCESS_ADDRESSES": env[1]["TPU_PROCESS_ADDRESSES"].replace(str(ports[0]), str(between))})
  job.add(env[2])
  job.until(lambda: False, 1.0)  # until they have proved the token to each other
  got = repeat_all(tally, ports, folder)
  job.add(env[3])
  job.all_said("ready", 60)
  got += repeat_all(tally, ports, folder)
  faults, _ = finish(job, 60)
  way.processes[0].signal(signal.SIGKILL)
  return faults + way.end(5) + [f"who repeats {what} heard {n} bytes" for what, n in got if n]


def repeat_all(tally, ports, folder):
  got = []
  for path in sorted(folder.iterdir()):
    said = path.read_bytes()
    for i, port in enumerate(ports):
      for size in {120, 152, len(said)}:
        got.append((f"{size} bytes of connection {path.name} to process {i}", network.repeat(port, said[:size])))
        tally.counts["repetitions"] += 1
  return got


def run_tamper(tally, draw, losses, sample):
  for i in range(tally.total):
    what, width = network.HARMS[i % len(network.HARMS)], draw.choice(WIDTHS)
    ports, (between,) = jobs.free_ports(2), jobs.free_ports(1)
    env = jobs.addresses(ports, "tcp")
    env[1]["TPU_PROCESS_ADDRESSES"] = env[1]["TPU_PROCESS_ADDRESSES"].replace(str(ports[0]), str(between))
    way = jobs.Job(network.stand_between, [{}], {"listen": between, "port": ports[0], "harms": what,
                                                 "after": draw.randrange(2000, 400000), "seed": draw.getrandbits(32)})
    way.all_said("ready", 10)
    job = train_job(env, width, losses, ahead=draw.choice((0, 3)))
    way.until(lambda: way.processes[0].find("harmed"), 60)
    harmed = way.processes[0].find("harmed") or {"at": time.monotonic(), "bytes": 0}
    ends = job.end(GRACE + SLACK)
    way.processes[0].signal(signal.SIGKILL)
    faults = ends + way.end(5) + wrongs(job) + [f for k, p in enumerate(job.processes)
                                                for f in look_at(p, k, 1 - k, harmed["at"], GRACE, sample)]
    tally.one(f"{what}, {harmed['bytes']} bytes, width {width}", faults)
    tally.times["until told"] += delays(job, None, harmed["at"])


def run_lost(tally, draw, losses, sample):
  for i in range(tally.total):
    wire = (*WIRES, "jax")[i % 4]
    job = jobs.Job(errors.use_what_is_lost, by_wire(wire, 2), {"lost": 1})
    if not job.all_said("ready", MEET):
      tally.one(wire, job.end(1) + ["they did not meet"])
      continue
    job.processes[1].signal(signal.SIGKILL)
    for p in job.processes:
      p.tell("killed")
    tally.one(wire, job.end(60) + wrongs(job) + ([] if job.processes[0].find("end") else ["it did not come to its end"]))


def run_errors(tally, draw, losses, sample):
  for i in range(tally.total):
    count, wire = ((1, "auto"), (2, "auto"), (2, "tcp"))[i % 3]
    job = jobs.Job(errors.make_mistakes, by_wire(wire, count))
    faults = job.end(120) + wrongs(job)
    for p in job.processes:
      faults += [] if p.find("end") else ["it did not come to its end"]
      tally.counts["mistakes"] += sum(s["event"] == "mistake" for s in p.said)
    tally.one(f"{count} processes, {wire}", faults)


# Kind: what runs it, how often, and how often in a sample.
KINDS = {"kill": (run_kill, 200, 4), "notice": (run_notice, 100, 5), "stop": (run_stop, 30, 3),
         "strangers": (run_strangers, 3, 1), "imposters": (run_imposters, 3, 1), "tamper": (run_tamper, 120, 3),
         "lost": (run_lost, 20, 2), "back": (run_back, 40, 4), "errors": (run_errors, 3, 2)}


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("kinds", nargs="*", metavar="KIND", help="of those above; all if none is named")
  parser.add_argument("--library", default=os.environ.get("ATOLL_LIBRARY"), help="libatoll.so")
  parser.add_argument("--count", type=int, help="runs of each kind, in the place of its own number")
  parser.add_argument("--seed", type=int, default=1)
  parser.add_argument("--sample", action="store_true", help="a few runs of each kind, of smaller sizes")
  args = parser.parse_args()
  if not args.library or set(args.kinds) - set(KINDS):
    parser.error("which library?" if not args.library else f"kinds are {', '.join(KINDS)}")
  os.environ.update(TPU_LIBRARY_PATH=str(pathlib.Path(args.library).resolve()), JAX_PLATFORMS="tpu,cpu",
                    ATOLL_TARGET=jobs.TARGET)
  import jax  # noqa: F401  (once, for all processes)
  losses = known_losses()
  failed = False
  for name in args.kinds or KINDS:
    run, full, few = KINDS[name]
    tally = Tally(name, args.count or (few if args.sample else full))
    run(tally, random.Random(args.seed), losses, args.sample)
    print(tally.line(), flush=True)
    failed |= bool(tally.failed)
  return failed


if __name__ == "__main__":
  sys.exit(main())
