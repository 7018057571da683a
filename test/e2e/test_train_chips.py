"""A transformer with a mixture of experts trains alike however it is spread over eight chips."""

EIGHT = {"ATOLL_TARGET": "v5e:2x4", "JAX_PLATFORMS": "tpu"}

TRAIN = """
import functools
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
B, T, D, H, F, E, V, L = 8, 16, 32, 4, 64, 8, 64, 2

def init(key):
  k = iter(jax.random.split(key, 64))
  w = lambda *s: jax.random.normal(next(k), s) / np.sqrt(s[-2])
  layer = lambda: dict(qkv=w(D, 3, H, D // H) * np.sqrt(3 * H / D), out=w(H, D // H, D) / np.sqrt(H),
                       up=w(D, F), down=w(F, D), gate=w(D, E), eup=w(E, D, F), edown=w(E, F, D),
                       n1=jnp.ones(D), n2=jnp.ones(D), n3=jnp.ones(D))
  return dict(embed=w(V, D), head=w(D, V), layers=[layer() for _ in range(L)])

def norm(x, g):
  return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g

def attention(p, x):
  q, k, v = jnp.moveaxis(jnp.einsum('btd,dchk->btchk', x, p['qkv']), 2, 0)
  s = jnp.einsum('bthk,bshk->bhts', q, k) / np.sqrt(D // H)
  s = jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, -1e9)
  return jnp.einsum('bhts,bshk,hkd->btd', jax.nn.softmax(s), v, p['out'])

def experts(p, x, pin):  # every token to its two best, no capacity
  g = jax.nn.softmax(x @ p['gate'])
  best, who = jax.lax.top_k(g, 2)
  weights = (jax.nn.one_hot(who, E) * best[..., None]).sum(-2)
  h = pin(jax.nn.relu(jnp.einsum('btd,edf->ebtf', x, p['eup'])))
  return jnp.einsum('ebtf,efd,bte->btd', h, p['edown'], weights)

def loss(params, tokens, pins):
  x = pins['x'](params['embed'][tokens[:, :-1]])
  for p in params['layers']:
    x = pins['x'](x + attention(p, norm(x, p['n1'])))
    x = pins['x'](x + jax.nn.gelu(norm(x, p['n2']) @ p['up']) @ p['down'])
    x = pins['x'](x + experts(p, norm(x, p['n3']), pins['h']))
  logp = jax.nn.log_softmax(x @ params['head'])
  return -jnp.take_along_axis(logp, tokens[:, 1:, None], -1).mean()

def run(shape, names, data, spec_of, x_spec=None, h_spec=None, steps=3):
  n = int(np.prod(shape))
  mesh = Mesh(np.array(jax.devices()[:n]).reshape(shape), names)
  sh = lambda s: NamedSharding(mesh, s)
  pin = lambda s: (lambda v: jax.lax.with_sharding_constraint(v, sh(s))) if s is not None else (lambda v: v)
  pins = dict(x=pin(x_spec), h=pin(h_spec))
  params = init(jax.random.key(0))
  where = jax.tree_util.tree_map_with_path(lambda path, v: sh(spec_of(path[-1].key, v)), params)
  state = (jax.device_put(params, where), jax.device_put(jax.tree.map(jnp.zeros_like, params), where))
  @functools.partial(jax.jit, donate_argnums=0, in_shardings=((where, where), sh(data)),
                     out_shardings=((where, where), sh(P())))
  def step(state, tokens):
    params, m = state
    l, g = jax.value_and_grad(loss)(params, tokens, pins)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
    return (jax.tree.map(lambda p, m: p - 0.3 * m, params, m), m), l
  losses = []
  for i in range(steps):
    tokens = jax.random.randint(jax.random.key(i), (B, T + 1), 0, V)
    state, l = step(state, jax.device_put(tokens, sh(data)))
    losses.append(float(l))
  return losses, jax.tree.map(np.asarray, state[0])

whole = lambda name, v: P()
one = run((1,), ('d',), P(), whole)
assert one[0][-1] < one[0][0], one[0]

def fsdp(name, v):
  d = next((i for i, s in enumerate(v.shape) if s % 8 == 0), None)
  return P(*[None] * d, 'd') if d is not None else P()
tensor = dict(qkv=P(None, None, 't'), out=P('t'), up=P(None, 't'), down=P('t'), eup=P(None, None, 't'),
              edown=P(None, 't'), embed=P(None, 't'), head=P(None, 't'))
expert = dict(eup=P('e'), edown=P('e'))

CASES = {
    'data parallel': ((8,), ('d',), P('d'), whole),
    'data x tensor': ((2, 4), ('d', 't'), P('d'), lambda name, v: tensor.get(name, P())),
    'fsdp': ((8,), ('d',), P('d'), fsdp, P('d')),
    'sequence': ((8,), ('s',), P(), whole, P(None, 's')),
    'expert': ((8,), ('e',), P('e'), lambda name, v: expert.get(name, P()), P('e'), P('e')),
}
for name, case in CASES.items():
  got = run(*case)
  np.testing.assert_allclose(got[0], one[0], rtol=2e-5, err_msg=name)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5, err_msg=name), got[1], one[1])
  print(name, got[0])
"""


def test_every_way_to_spread_a_transformer(python):
  p = python(TRAIN, env=EIGHT, timeout=600)
  assert p.returncode == 0, p.stdout + p.stderr
  assert p.stdout.count("\n") == 5, p.stdout
