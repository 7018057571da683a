"""Programs of any size, by family: the program of size 4n has four times as many ops (calls,
values, branches, ...) as that of size n. To add a family, write a function of n that returns the
program and mark it with @family(n). Chains of elementwise ops are made from src/hlo/ops.def."""
import pathlib
import random
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
T = "tensor<64x32xf32>"
W = "tensor<32x32xf32>"
FAMILIES = {}  # name: (n, function of n)


def family(n):
  def add(function):
    FAMILIES[function.__name__] = (n, function)
    return function
  return add


# ---- Pieces -----------------------------------------------------------------------------------
def main(body, result="v{n}", type=T, arguments=None, functions=""):
  arguments = arguments or f"%v0: {type}"
  return (f"module {{\nfunc.func @main({arguments}) -> {type} {{\n" + "\n".join(body) +
          f"\nreturn %{result} : {type}\n}}\n{functions}\n}}\n")


def op(to, name, *operands, type=T):
  return f"%{to} = stablehlo.{name} {', '.join('%' + o for o in operands)} : {type}"


def generic(to, name, operands, types, result, attributes=""):
  return (f"%{to} = \"stablehlo.{name}\"({', '.join('%' + o for o in operands)}) "
          f"{{{attributes}}} : ({', '.join(types)}) -> {result}")


def dot(to, a):
  return (f"%q{to} = stablehlo.constant dense<0.5> : {W}\n"
          f"%{to} = stablehlo.dot_general %{a}, %q{to}, contracting_dims = [1] x [0] : ({T}, {W}) -> {T}")


def kind(i):
  return ("add", "multiply", "subtract", "maximum")[i * 7 % 11 % 4]


def v(i):
  return f"v{max(i, 0)}"


def several(n, body, type=T, arguments=None):
  """n results %r0, %r1, ..."""
  types = ", ".join([type] * n)
  return (f"module {{\nfunc.func @main({arguments or f'%v0: {type}'}) -> ({types}) {{\n" + "\n".join(body) +
          f"\nreturn {', '.join(f'%r{i}' for i in range(n))} : {types}\n}}\n}}\n")


# ---- Constants of which memory is filled
@family(100)
def filled(n):
  return several(n, [f"%r{i} = stablehlo.constant dense<{i}.5> : {T}" for i in range(n)])


# ---- Elementwise programs as users write them ---------------------------------------------------
@family(400)
def mixed(n):
  return main([op(v(i), kind(i), v(i - 1), v(i - 4)) for i in range(1, n + 1)], v(n))


@family(400)
def product_every_ten(n):
  body = []
  for i in range(1, n + 1):
    body.append(dot(v(i), v(i - 1)) if i % 10 == 0 else
                op(v(i), "tanh", v(i - 1)) if i % 10 == 5 else op(v(i), kind(i), v(i - 1), v(i - 4)))
  return main(body, v(n))


@family(400)
def products(n):
  return main([dot(v(i), v(i - 1)) for i in range(1, n + 1)], v(n))


@family(100)
def diamonds(n):
  body = []
  for i in range(n):
    body += [op(f"a{i}", "negate", v(i)), op(f"b{i}", "abs", v(i)), op(v(i + 1), "add", f"a{i}", f"b{i}")]
  return main(body, v(n))


@family(100)
def logistic_map(n):
  body = []
  for i in range(n):
    body += [op(f"a{i}", "subtract", "v0", v(i)), op(v(i + 1), "multiply", f"a{i}", v(i))]
  return main(body, v(n))


@family(48)  # below, tables that double in size hide that bytes grow by four
def runge_kutta(n):
  body = []
  for i in range(n):
    for s in range(4):
      if s:
        body.append(op(f"x{s}_{i}", "add", v(i), f"k{s - 1}_{i}"))
      x = f"x{s}_{i}" if s else v(i)
      body += [op(f"s{s}_{i}", "sine", x), op(f"k{s}_{i}", "multiply", f"s{s}_{i}", x)]
    body += [op(f"y0_{i}", "add", v(i), f"k0_{i}"), op(f"y1_{i}", "add", f"y0_{i}", f"k1_{i}"),
             op(f"y2_{i}", "add", f"y1_{i}", f"k2_{i}"), op(v(i + 1), "add", f"y2_{i}", f"k3_{i}")]
  return main(body, v(n))


@family(60)
def mandelbrot(n):
  body = []
  for i in range(n):
    body += [op(f"a{i}", "multiply", v(i), v(i)), op(v(i + 1), "add", f"a{i}", "v0")]
  return main(body, v(n))


@family(60)
def xorshift(n):
  type = "tensor<64xui32>"
  body = [f"%s{k} = stablehlo.constant dense<{s}> : {type}" for k, s in enumerate((13, 17, 5))]
  for i in range(n):
    shift = "shift_right_logical" if i % 3 == 1 else "shift_left"
    body += [op(f"a{i}", shift, v(i), f"s{i % 3}", type=type), op(v(i + 1), "xor", v(i), f"a{i}", type=type)]
  return main(body, v(n), type)


@family(40)
def threefry(n):
  type = "tensor<64xui32>"
  body = [f"%s{k} = stablehlo.constant dense<{s}> : {type}" for k, s in enumerate((13, 19))]
  body.append(f"%y0 = stablehlo.not %v0 : {type}")
  for i in range(n):
    body += [op(v(i + 1), "add", v(i), f"y{i}", type=type), op(f"a{i}", "shift_left", f"y{i}", "s0", type=type),
             op(f"b{i}", "shift_right_logical", f"y{i}", "s1", type=type),
             op(f"o{i}", "or", f"a{i}", f"b{i}", type=type), op(f"y{i + 1}", "xor", v(i + 1), f"o{i}", type=type)]
  return main(body, f"y{n}", type)


@family(20)
def gelu(n):
  body = []
  for i in range(n):
    body += [op(f"a{i}", "multiply", v(i), v(i)), op(f"b{i}", "multiply", f"a{i}", v(i)),
             op(f"c{i}", "tanh", f"b{i}"), op(f"d{i}", "multiply", f"c{i}", v(i)), op(v(i + 1), "add", f"d{i}", v(i))]
  return main(body, v(n))


@family(20)
def silu(n):
  body = []
  for i in range(n):
    body += [op(f"a{i}", "logistic", v(i)), op(v(i + 1), "multiply", f"a{i}", v(i))]
  return main(body, v(n))


@family(20)
def row_norms(n):
  """What is divided by the sums of its rows, and a product between every two; all read the first value, too."""
  R = "tensor<64xf32>"
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
  for i in range(n):
    body += [op(f"e{i}", "exponential", v(i)),
             f"%s{i} = stablehlo.reduce(%e{i} init: %z) applies stablehlo.add across dimensions = [1] : ({T}, tensor<f32>) -> {R}",
             f"%b{i} = stablehlo.broadcast_in_dim %s{i}, dims = [0] : ({R}) -> {T}",
             op(f"d{i}", "divide", f"e{i}", f"b{i}"), op(f"r{i}", "add", f"d{i}", "v0"), dot(f"v{i + 1}", f"r{i}")]
  return main(body, v(n))


@family(160)
def reads_eight_before(n):
  body, values, at = [], ["v0"] * 8, "v0"
  for i in range(n):
    for k in range(8):
      body.append(op(f"a{i}_{k}", "multiply" if k % 2 else "add", at, values[k]))
      at = f"a{i}_{k}"
    values[i % 8] = at
  return main(body, at)


@family(400)
def dead(n):
  return main([op(v(i), "sine", v(i - 1)) for i in range(1, n + 1)], "v1")


@family(400)
def equal(n):
  body = ["%s0 = stablehlo.negate %v0 : " + T]
  for i in range(n):
    body += [op(f"a{i}", "abs", "v0"), op(f"s{i + 1}", "add", f"s{i}", f"a{i}")]
  return main(body, f"s{n}")


@family(200)
def folded(n):
  type = "tensor<8xf32>"
  body = [f"%c0 = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : {type}"]
  body += [op(f"c{i + 1}", ("add", "multiply")[i % 2], f"c{i}", "c0", type=type) for i in range(n)]
  return main(body + [op("r", "add", f"c{n}", "v0", type=type)], "r", type)


@family(200)
def constants(n):
  body = []
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<[{i}.0, {i}.5, 3.0, 4.0]> : tensor<4xf32>",
             op(v(i + 1), kind(i), v(i), f"c{i}", type="tensor<4xf32>")]
  return main(body, v(n), "tensor<4xf32>")


# ---- Many arguments, results and readers ---------------------------------------------------------
@family(100)
def fan_out(n):
  body = [op("x", "multiply", "v0", "v0")]
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<{i + 2}.0> : {T}", op(f"r{i}", "add", "x", f"c{i}")]
  return several(n, body)


@family(100)
def fan_in(n):
  arguments = ", ".join(f"%p{i}: {T}" for i in range(n))
  body = [op("v1", "negate", "p0")] + [op(v(i + 1), "add", v(i), f"p{i}") for i in range(1, n)]
  return main(body, v(n), arguments=arguments)


@family(100)
def unused_arguments(n):
  return main([op("v1", "negate", "p0")], "v1", arguments=", ".join(f"%p{i}: {T}" for i in range(n)))


@family(100)
def donated(n):
  arguments = ", ".join(f"%p{i}: {T} {{jax.buffer_donor = true}}" for i in range(n))
  return several(n, [op(f"r{i}", "add", f"p{i}", f"p{(i + 1) % n}") for i in range(n)], arguments=arguments)


@family(100)
def aliased(n):
  arguments = ", ".join(f"%p{i}: {T} {{tf.aliasing_output = {n - 1 - i} : i32}}" for i in range(n))
  return several(n, [op(f"r{i}", "add", f"p{i}", f"p{(i + 1) % n}") for i in range(n)], arguments=arguments)


@family(100)
def passed_through(n):
  arguments = ", ".join(f"%r{i}: {T} {{jax.buffer_donor = true}}" for i in range(n))
  return several(n, [], arguments=arguments)


@family(100)
def scalars(n):
  type = "tensor<f32>"
  arguments = ", ".join(f"%p{i}: {type}" for i in range(n))
  return several(n, [op(f"r{i}", "multiply", f"p{i}", f"p{i}", type=type) for i in range(n)], type, arguments)


@family(60)
def barrier(n):
  names, types = ", ".join(f"%a{i}" for i in range(n)), ", ".join([T] * n)
  body = [op(f"a{i}", "add", "v0" if not i else f"a{i - 1}", "v0") for i in range(n)]
  body.append(f"%b:{n} = stablehlo.optimization_barrier {names} : {types}")
  body += [f"%s0 = stablehlo.negate %b#0 : {T}"]
  body += [f"%s{i} = stablehlo.multiply %s{i - 1}, %b#{i} : {T}" for i in range(1, n)]
  return main(body, f"s{n - 1}")


# ---- Functions -----------------------------------------------------------------------------------
@family(400)
def deep_calls(n):
  functions = []
  for i in range(n):
    inner = f"%v1 = func.call @f{i + 1}(%v0) : ({T}) -> {T}" if i + 1 < n else op("v1", "negate", "v0")
    functions.append(f"func.func private @f{i}(%v0: {T}) -> {T} {{\n{inner}\nreturn %v1 : {T}\n}}")
  return main([f"%v1 = func.call @f0(%v0) : ({T}) -> {T}"], "v1", functions="\n".join(functions))


@family(200)
def one_function_called(n):
  return main([f"%v{i + 1} = func.call @f(%v{i}) : ({T}) -> {T}" for i in range(n)], v(n),
              functions=f"func.func private @f(%v0: {T}) -> {T} {{\n{dot('v1', 'v0')}\nreturn %v1 : {T}\n}}")


@family(100)
def functions_called(n, ops=5):
  functions = []
  for i in range(n):
    body = [op(v(k), kind(i + k), v(k - 1), v(k - 3)) for k in range(1, ops)] + [dot(v(ops), v(ops - 1))]
    functions.append(f"func.func private @f{i}(%v0: {T}) -> {T} {{\n" + "\n".join(body) + f"\nreturn %{v(ops)} : {T}\n}}")
  return main([f"%v{i + 1} = func.call @f{i}(%v{i}) : ({T}) -> {T}" for i in range(n)], v(n),
              functions="\n".join(functions))


@family(400)
def functions_not_called(n):
  return main([op("v1", "negate", "v0")], "v1",
              functions="\n".join(f"func.func private @f{i}(%v0: {T}) -> {T} {{\nreturn %v0 : {T}\n}}" for i in range(n)))


@family(40)
def distinct_kernels(n, ops=40):
  """No two of the kernels are equal: other shapes and other ops. Past AT_CG_FULL_NODES they are compiled quickly."""
  names = ("tanh", "add", "exponential", "multiply", "logistic", "maximum", "sine", "subtract", "sqrt", "divide", "log")
  draw, body, types = random.Random(n), [], []
  for i in range(n):
    t = f"tensor<{2 + i % 61}x{2 + i // 61 + i % 89}xf32>"
    types.append(t)
    for k in range(ops):
      name, last = draw.choice(names), f"x{i}_{k - 1}" if k else f"a{i}"
      both = name in ("add", "multiply", "maximum", "subtract", "divide")
      body.append(op(f"x{i}_{k}", name, last, *([f"a{i}"] if both else []), type=t))
  inputs = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
  return (f"module {{\nfunc.func @main({inputs}) -> ({', '.join(types)}) {{\n" + "\n".join(body) +
          f"\nreturn {', '.join(f'%x{i}_{ops - 1}' for i in range(n))} : {', '.join(types)}\n}}\n}}\n")


# ---- Control flow ----------------------------------------------------------------------------------
COUNTS = ["%zero = stablehlo.constant dense<0> : tensor<i32>", "%one = stablehlo.constant dense<1> : tensor<i32>",
          "%ten = stablehlo.constant dense<10> : tensor<i32>"]


def less(to, i):
  return f"%{to} = stablehlo.compare LT, %{i}, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>"


def begin_while(i, start):
  return [f"%w{i}:2 = stablehlo.while(%i{i} = %zero, %b{i} = %{start}) : tensor<i32>, {T}\ncond {{",
          less(f"c{i}", f"i{i}"), f"stablehlo.return %c{i} : tensor<i1>\n}} do {{",
          op(f"n{i}", "add", f"i{i}", "one", type="tensor<i32>")]


def end_while(i, result):
  return [f"stablehlo.return %n{i}, %{result} : tensor<i32>, {T}\n}}"]


@family(50)
def loops(n):
  body = list(COUNTS)
  for i in range(n):
    body += begin_while(i, f"w{i - 1}#1" if i else "v0") + [dot(f"d{i}", f"b{i}")] + end_while(i, f"d{i}")
  return main(body, f"w{n - 1}#1")


@family(8)
def nested_loops(n):
  body = list(COUNTS)
  for i in range(n):
    body += begin_while(i, f"b{i - 1}" if i else "v0")
  body.append(dot("d", f"b{n - 1}"))
  for i in reversed(range(n)):
    body += end_while(i, f"w{i + 1}#1" if i + 1 < n else "d")
  return main(body, "w0#1")


@family(8)
def nested_scalar_loops(n):
  body = list(COUNTS)
  type = "tensor<i32>"
  for i in range(n):
    start = f"b{i - 1}" if i else "v0"
    body += [f"%w{i}:2 = stablehlo.while(%i{i} = %zero, %b{i} = %{start}) : {type}, {type}\ncond {{",
             less(f"c{i}", f"i{i}"), f"stablehlo.return %c{i} : tensor<i1>\n}} do {{",
             op(f"n{i}", "add", f"i{i}", "one", type=type)]
  body.append(op("d", "multiply", f"b{n - 1}", f"b{n - 1}", type=type))
  for i in reversed(range(n)):
    body.append(f"stablehlo.return %n{i}, %{f'w{i + 1}#1' if i + 1 < n else 'd'} : {type}, {type}\n}}")
  return main(body, "w0#1", type)


@family(50)
def scalar_loops(n):
  type = "tensor<i32>"
  body = list(COUNTS)
  for i in range(n):
    body += [f"%v{i + 1} = stablehlo.while(%i{i} = %v{i}) : {type}\ncond {{", less(f"c{i}", f"i{i}"),
             f"stablehlo.return %c{i} : tensor<i1>\n}} do {{", op(f"n{i}", "add", f"i{i}", "one", type=type),
             f"stablehlo.return %n{i} : {type}\n}}"]
  return main(body, v(n), type)


@family(40)
def wide_loop(n):
  types = ", ".join([T] * n)
  carried = "".join(f", %b{k} = %v0" for k in range(n))
  body = COUNTS + [f"%w:{n + 1} = stablehlo.while(%i = %zero{carried}) : tensor<i32>, {types}\ncond {{", less("c", "i"),
                   "stablehlo.return %c : tensor<i1>\n} do {", op("n", "add", "i", "one", type="tensor<i32>")]
  body += [op(f"d{k}", "add", f"b{k}", f"b{(k + 1) % n}") for k in range(n)]
  body.append("stablehlo.return %n" + "".join(f", %d{k}" for k in range(n)) + f" : tensor<i32>, {types}\n}}")
  body.append(f"%s0 = stablehlo.negate %w#1 : {T}")
  body += [f"%s{k} = stablehlo.add %s{k - 1}, %w#{k + 1} : {T}" for k in range(1, n)]
  return main(body, f"s{n - 1}")


@family(40)
def loop_that_captures(n):
  body = COUNTS + [op(f"a{i}", "add", f"a{i - 1}" if i else "v0", "v0") for i in range(n)]
  body += begin_while(0, "v0")
  body += [op(f"d{k}", "multiply", f"d{k - 1}" if k else "b0", f"a{k}") for k in range(n)] + [dot("e", f"d{n - 1}")]
  return main(body + end_while(0, "e"), "w0#1")


@family(50)
def branches(n):
  body = []
  for i in range(n):
    body += [f"%v{i + 1} = \"stablehlo.if\"(%p) ({{", dot(f"d{i}", v(i)), f"stablehlo.return %d{i} : {T}\n}}, {{",
             op(f"e{i}", "negate", v(i)), f"stablehlo.return %e{i} : {T}\n}}) : (tensor<i1>) -> {T}"]
  return main(body, v(n), arguments=f"%v0: {T}, %p: tensor<i1>")


@family(1000)  # below, the searches of each branch for its readers hide behind its compilation
def branches_returned(n):
  return several(n, [f"%r{i} = \"stablehlo.if\"(%p) ({{\nstablehlo.return %v0 : {T}\n}}, {{\n" + op(f"e{i}", "negate", v(0)) +
                     f"\nstablehlo.return %e{i} : {T}\n}}) : (tensor<i1>) -> {T}" for i in range(n)],
                 arguments=f"%v0: {T}, %p: tensor<i1>")


@family(8)
def nested_branches(n):
  body = [f"%r{i} = \"stablehlo.if\"(%p{i}) ({{" for i in range(n)] + [dot("d", "v0")]
  for i in reversed(range(n)):
    body.append(f"stablehlo.return %{f'r{i + 1}' if i + 1 < n else 'd'} : {T}\n}}, {{\nstablehlo.return %v0 : {T}\n}})"
                f" : (tensor<i1>) -> {T}")
  return main(body, "r0", arguments=f"%v0: {T}, " + ", ".join(f"%p{i}: tensor<i1>" for i in range(n)))


@family(50)
def wide_case(n):
  body = ["%r = \"stablehlo.case\"(%p) (" + ", ".join(
      f"{{\n{dot(f'd{i}', 'v0')}\nstablehlo.return %d{i} : {T}\n}}" for i in range(n)) + f") : (tensor<i32>) -> {T}"]
  return main(body, "r", arguments=f"%v0: {T}, %p: tensor<i32>")


# ---- Movement of data --------------------------------------------------------------------------------
@family(200)
def concatenate_many(n):
  type = f"tensor<{n * 4}x32xf32>"
  body = [op(f"a{i}", "add", f"a{i - 1}" if i else "v0", "v0", type="tensor<4x32xf32>") for i in range(n)]
  body.append(generic("r", "concatenate", [f"a{i}" for i in range(n)], ["tensor<4x32xf32>"] * n, type,
                      "dimension = 0 : i64"))
  return (f"module {{\nfunc.func @main(%v0: tensor<4x32xf32>) -> {type} {{\n" + "\n".join(body) +
          f"\nreturn %r : {type}\n}}\n}}\n")


@family(60)
def concatenates(n):
  body = []
  for i in range(n):
    body += [f"%a{i} = stablehlo.slice %v{i} [0:32, 0:32] : ({T}) -> {W}",
             f"%b{i} = stablehlo.slice %v{i} [16:48, 0:32] : ({T}) -> {W}",
             generic(v(i + 1), "concatenate", [f"a{i}", f"b{i}"], [W, W], T, "dimension = 0 : i64")]
  return main(body, v(n))


@family(60)
def reshapes_and_transposes(n):
  body, u = [], "tensor<32x64xf32>"
  for i in range(n):
    body += [f"%a{i} = stablehlo.transpose %v{i}, dims = [1, 0] : ({T}) -> {u}",
             f"%b{i} = stablehlo.reshape %a{i} : ({u}) -> {T}", op(v(i + 1), "add", f"b{i}", v(i))]
  return main(body, v(n))


@family(60)
def reverses(n):
  body = []
  for i in range(n):
    body += [f"%a{i} = stablehlo.reverse %v{i}, dims = [{i % 2}] : {T}", op(v(i + 1), "add", f"a{i}", v(i))]
  return main(body, v(n))


@family(60)
def rolls(n):
  body = []
  for i in range(n):
    body += [f"%a{i} = stablehlo.slice %v{i} [0:1, 0:32] : ({T}) -> tensor<1x32xf32>",
             f"%b{i} = stablehlo.slice %v{i} [1:64, 0:32] : ({T}) -> tensor<63x32xf32>",
             generic(f"c{i}", "concatenate", [f"b{i}", f"a{i}"], ["tensor<63x32xf32>", "tensor<1x32xf32>"], T,
                     "dimension = 0 : i64"), op(v(i + 1), "add", f"c{i}", v(i))]
  return main(body, v(n))


@family(60)
def pads(n):
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
  for i in range(n):
    body += [f"%a{i} = stablehlo.pad %v{i}, %z, low = [1, 0], high = [-1, 0], interior = [0, 0] : "
             f"({T}, tensor<f32>) -> {T}", op(v(i + 1), "add", f"a{i}", v(i))]
  return main(body, v(n))


@family(60)
def updates(n):
  body = list(COUNTS)
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<{i % 60}> : tensor<i32>",
             f"%a{i} = stablehlo.dynamic_slice %v{i}, %c{i}, %zero, sizes = [1, 32] : "
             f"({T}, tensor<i32>, tensor<i32>) -> tensor<1x32xf32>",
             op(f"b{i}", "negate", f"a{i}", type="tensor<1x32xf32>"),
             f"%v{i + 1} = stablehlo.dynamic_update_slice %v{i}, %b{i}, %c{i}, %one : "
             f"({T}, tensor<1x32xf32>, tensor<i32>, tensor<i32>) -> {T}"]
  return main(body, v(n))


@family(30)
def gathers(n):
  body = []
  for i in range(n):
    body.append(generic(v(i + 1), "gather", [v(i), "p"], [T, "tensor<64x1xi32>"], T,
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], "
        "start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 32>, indices_are_sorted = false"))
  return main(body, v(n), arguments=f"%v0: {T}, %p: tensor<64x1xi32>")


@family(30)
def scatters(n):
  body = []
  for i in range(n):
    body.append(f"%v{i + 1} = \"stablehlo.scatter\"(%v{i}, %p, %v0) ({{\n^bb0(%x{i}: tensor<f32>, %y{i}: tensor<f32>):\n"
                f"%z{i} = stablehlo.add %x{i}, %y{i} : tensor<f32>\nstablehlo.return %z{i} : tensor<f32>\n}}) "
                "{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
                "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, "
                f"unique_indices = false}} : ({T}, tensor<64x1xi32>, {T}) -> {T}")
  return main(body, v(n), arguments=f"%v0: {T}, %p: tensor<64x1xi32>")


# ---- Regions --------------------------------------------------------------------------------------------
@family(30)
def sorts(n):
  body = []
  for i in range(n):
    body += [f"%a{i} = \"stablehlo.sort\"(%v{i}) ({{\n^bb0(%x{i}: tensor<f32>, %y{i}: tensor<f32>):\n"
             f"%z{i} = stablehlo.compare LT, %x{i}, %y{i} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
             f"stablehlo.return %z{i} : tensor<i1>\n}}) {{dimension = {i % 2} : i64, is_stable = true}} : ({T}) -> {T}",
             op(v(i + 1), "add", f"a{i}", v(i))]
  return main(body, v(n))


@family(60)
def reduces(n):
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
  for i in range(n):
    body += [f"%a{i} = stablehlo.reduce(%v{i} init: %z) applies stablehlo.add across dimensions = [1] : "
             f"({T}, tensor<f32>) -> tensor<64xf32>",
             f"%b{i} = stablehlo.broadcast_in_dim %a{i}, dims = [0] : (tensor<64xf32>) -> {T}",
             op(v(i + 1), "subtract", v(i), f"b{i}")]
  return main(body, v(n))


@family(60)
def reduces_of_one(n):
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<{i + 2}.0> : {T}", op(f"a{i}", "multiply", "v0", f"c{i}"),
             f"%r{i} = stablehlo.reduce(%a{i} init: %z) applies stablehlo.add across dimensions = [0, 1] : "
             f"({T}, tensor<f32>) -> tensor<f32>"]
  return several(n, body, "tensor<f32>", arguments=f"%v0: {T}")


@family(16)
def windows(n):
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
  for i in range(n):
    body.append(f"%v{i + 1} = \"stablehlo.reduce_window\"(%v{i}, %z) ({{\n^bb0(%x{i}: tensor<f32>, %y{i}: tensor<f32>):\n"
                f"%s{i} = stablehlo.add %x{i}, %y{i} : tensor<f32>\nstablehlo.return %s{i} : tensor<f32>\n}}) "
                "{window_dimensions = array<i64: 3, 1>, window_strides = array<i64: 1, 1>, "
                f"padding = dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>}} : ({T}, tensor<f32>) -> {T}")
  return main(body, v(n))


@family(30)
def random_bits(n):
  state, bits = "tensor<2xui64>", "tensor<64xui32>"
  body = []
  for i in range(n):
    body += [f"%k{i}, %a{i} = stablehlo.rng_bit_generator %{f'k{i - 1}' if i else 'p'}, algorithm = THREE_FRY : "
             f"({state}) -> ({state}, {bits})", op(v(i + 1), "xor", v(i), f"a{i}", type=bits)]
  return main(body, v(n), bits, arguments=f"%v0: {bits}, %p: {state}")


# ---- As wide as n ------------------------------------------------------------------------------------
def loop_of(n, body, results):
  """A while around n arrays; results: the names that the body returns for %b0, %b1, ..."""
  types = ", ".join([T] * n)
  carried = "".join(f", %b{k} = %p{k}" for k in range(n))
  return COUNTS + [f"%w:{n + 1} = stablehlo.while(%i = %zero{carried}) : tensor<i32>, {types}\ncond {{", less("c", "i"),
                   "stablehlo.return %c : tensor<i1>\n} do {", op("n", "add", "i", "one", type="tensor<i32>")] + body + [
                       "stablehlo.return %n" + "".join(f", %{r}" for r in results) + f" : tensor<i32>, {types}\n}}"]


def wide(n, body, results):
  """n arguments %p0, %p1, ... and n results."""
  types = ", ".join([T] * n)
  arguments = ", ".join(f"%p{i}: {T}" for i in range(n))
  return (f"module {{\nfunc.func @main({arguments}) -> ({types}) {{\n" + "\n".join(body) +
          f"\nreturn {', '.join('%' + r for r in results)} : {types}\n}}\n}}\n")


@family(120)
def concatenate_arguments(n):
  type = f"tensor<{4 * n}xf32>"
  arguments = ", ".join(f"%p{i}: tensor<4xf32>" for i in range(n))
  return main([generic("r", "concatenate", [f"p{i}" for i in range(n)], ["tensor<4xf32>"] * n, type,
                       "dimension = 0 : i64")], "r", type, arguments)


@family(120)
def stack_arguments(n):
  type, row = f"tensor<64x{n}xf32>", "tensor<64x1xf32>"
  arguments = ", ".join(f"%p{i}: tensor<64xf32>" for i in range(n))
  body = [f"%a{i} = stablehlo.reshape %p{i} : (tensor<64xf32>) -> {row}" for i in range(n)]
  body.append(generic("r", "concatenate", [f"a{i}" for i in range(n)], [row] * n, type, "dimension = 1 : i64"))
  return main(body, "r", type, arguments)


@family(120)
def concatenate_computed(n):
  type = f"tensor<{4 * n}xf32>"
  body = []
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<{i + 2}.0> : tensor<4xf32>",
             op(f"a{i}", "multiply", "v0", f"c{i}", type="tensor<4xf32>")]
  body.append(generic("r", "concatenate", [f"a{i}" for i in range(n)], ["tensor<4xf32>"] * n, type,
                      "dimension = 0 : i64"))
  return main(body, "r", type, "%v0: tensor<4xf32>")


@family(80)
def concatenate_padded(n):
  type, part = f"tensor<{6 * n}xf32>", "tensor<6xf32>"
  arguments = ", ".join(f"%p{i}: tensor<4xf32>" for i in range(n))
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>"]
  body += [f"%a{i} = stablehlo.pad %p{i}, %z, low = [1], high = [1], interior = [0] : (tensor<4xf32>, tensor<f32>) -> {part}"
           for i in range(n)]
  body.append(generic("r", "concatenate", [f"a{i}" for i in range(n)], [part] * n, type, "dimension = 0 : i64"))
  return main(body, "r", type, arguments)


@family(100)
def split_and_joined(n):
  type, row = f"tensor<{n}x64xf32>", "tensor<1x64xf32>"
  body = []
  for i in range(n):
    body += [f"%s{i} = stablehlo.slice %v0 [{i}:{i + 1}, 0:64] : ({type}) -> {row}",
             op(f"a{i}", kind(i), f"s{i}", f"s{max(i - 1, 0)}", type=row)]
  body.append(generic("r", "concatenate", [f"a{i}" for i in range(n)], [row] * n, type, "dimension = 0 : i64"))
  return main(body, "r", type, f"%v0: {type}")


@family(120)
def results_of_one(n):
  body = [op("y", "sine", "v0")]
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<{i + 2}.0> : {T}", op(f"r{i}", "multiply", "y", f"c{i}")]
  return several(n, body)


@family(1000)  # what looks at every op for every argument takes half of the blocks at 4000
def arguments_and_results(n):
  return wide(n, [op(f"r{i}", kind(i), f"p{i}", f"p{(i + 1) % n}") for i in range(n)], [f"r{i}" for i in range(n)])


@family(40)
def loop_of_tuples(n):
  return wide(n, loop_of(n, [op(f"d{k}", kind(k), f"b{k}", f"b{(k + 1) % n}") for k in range(n)],
                         [f"d{k}" for k in range(n)]), [f"w#{k + 1}" for k in range(n)])


@family(40)
def loop_that_rotates(n):
  return wide(n, loop_of(n, [], [f"b{(k + 1) % n}" for k in range(n)]), [f"w#{k + 1}" for k in range(n)])


@family(40)
def branch_of_tuples(n):
  types = ", ".join([T] * n)
  body = [f"%z = stablehlo.constant dense<0.0> : tensor<f32>",
          f"%a = stablehlo.slice %p0 [0:1, 0:1] : ({T}) -> tensor<1x1xf32>", "%s = stablehlo.reshape %a : (tensor<1x1xf32>) -> tensor<f32>",
          "%q = stablehlo.compare LT, %s, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>", f"%r:{n} = \"stablehlo.if\"(%q) ({{"]
  body += [op(f"d{k}", kind(k), f"p{k}", f"p{(k + 1) % n}") for k in range(n)]
  body += ["stablehlo.return " + ", ".join(f"%d{k}" for k in range(n)) + f" : {types}\n}}, {{",
           "stablehlo.return " + ", ".join(f"%p{(k + 1) % n}" for k in range(n)) + f" : {types}\n}}) : (tensor<i1>) -> ({types})"]
  return wide(n, body, [f"r#{k}" for k in range(n)])


@family(12)
def case_of_tuples(n):
  """n branches of n results would be n squared: eight branches."""
  types = ", ".join([T] * n)
  branches = []
  for b in range(8):
    branches.append("{\n" + "\n".join(op(f"d{b}_{k}", kind(k + b), f"p{k}", f"p{(k + b) % n}") for k in range(n)) +
                    "\nstablehlo.return " + ", ".join(f"%d{b}_{k}" for k in range(n)) + f" : {types}\n}}")
  arguments = ", ".join(f"%p{i}: {T}" for i in range(n)) + ", %p: tensor<i32>"
  return (f"module {{\nfunc.func @main({arguments}) -> ({types}) {{\n%r:{n} = \"stablehlo.case\"(%p) (" + ", ".join(branches) +
          f") : (tensor<i32>) -> ({types})\nreturn {', '.join(f'%r#{k}' for k in range(n))} : {types}\n}}\n}}\n")


@family(60)
def switch_of_small(n):
  body = ["%r = \"stablehlo.case\"(%p) (" + ", ".join(
      f"{{\n{op(f'd{i}', kind(i), 'v0', 'v0')}\n{op(f'e{i}', 'tanh', f'd{i}')}\nstablehlo.return %e{i} : {T}\n}}"
      for i in range(n)) + f") : (tensor<i32>) -> {T}"]
  return main(body, "r", arguments=f"%v0: {T}, %p: tensor<i32>")


@family(60)
def select_chain(n):
  body = []
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<{i}> : tensor<64x32xi32>",
             f"%q{i} = stablehlo.compare EQ, %k, %c{i} : (tensor<64x32xi32>, tensor<64x32xi32>) -> tensor<64x32xi1>",
             f"%f{i} = stablehlo.constant dense<{i}.5> : {T}",
             f"%v{i + 1} = stablehlo.select %q{i}, %f{i}, %v{i} : tensor<64x32xi1>, {T}"]
  return main(body, v(n), arguments=f"%v0: {T}, %k: tensor<64x32xi32>")


@family(16)
def reduce_of_operands(n):
  R = "tensor<64xf32>"
  x = ", ".join(f"%x{k}: tensor<f32>" for k in range(n)) + ", " + ", ".join(f"%y{k}: tensor<f32>" for k in range(n))
  inside = [op(f"z{k}", ("add", "maximum", "multiply")[k % 3], f"x{k}", f"y{k}", type="tensor<f32>") for k in range(n)]
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>",
          f"%r:{n} = \"stablehlo.reduce\"(" + ", ".join(f"%p{k}" for k in range(n)) + ", " + ", ".join(["%z"] * n) +
          f") ({{\n^bb0({x}):\n" + "\n".join(inside) + "\nstablehlo.return " + ", ".join(f"%z{k}" for k in range(n)) +
          " : " + ", ".join(["tensor<f32>"] * n) + "\n}) {dimensions = array<i64: 1>} : (" +
          ", ".join([T] * n + ["tensor<f32>"] * n) + ") -> (" + ", ".join([R] * n) + ")"]
  arguments = ", ".join(f"%p{i}: {T}" for i in range(n))
  return (f"module {{\nfunc.func @main({arguments}) -> ({', '.join([R] * n)}) {{\n" + "\n".join(body) +
          f"\nreturn {', '.join(f'%r#{k}' for k in range(n))} : {', '.join([R] * n)}\n}}\n}}\n")


@family(12)
def scatter_of_operands(n):
  x = ", ".join(f"%x{k}: tensor<f32>" for k in range(n)) + ", " + ", ".join(f"%y{k}: tensor<f32>" for k in range(n))
  inside = [op(f"z{k}", ("add", "maximum")[k % 2], f"x{k}", f"y{k}", type="tensor<f32>") for k in range(n)]
  types = ", ".join([T] * n)
  body = [f"%r:{n} = \"stablehlo.scatter\"(" + ", ".join(f"%p{k}" for k in range(n)) + ", %at, " +
          ", ".join(f"%p{(k + 1) % n}" for k in range(n)) + f") ({{\n^bb0({x}):\n" + "\n".join(inside) +
          "\nstablehlo.return " + ", ".join(f"%z{k}" for k in range(n)) + " : " + ", ".join(["tensor<f32>"] * n) +
          "\n}) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
          "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false} "
          f": ({types}, tensor<64x1xi32>, {types}) -> ({types})"]
  arguments = ", ".join(f"%p{i}: {T}" for i in range(n)) + ", %at: tensor<64x1xi32>"
  return (f"module {{\nfunc.func @main({arguments}) -> ({types}) {{\n" + "\n".join(body) +
          f"\nreturn {', '.join(f'%r#{k}' for k in range(n))} : {types}\n}}\n}}\n")


@family(60)
def sort_of_operands(n):
  types = ", ".join([T] * n)
  x = ", ".join(f"%x{k}: tensor<f32>, %y{k}: tensor<f32>" for k in range(n))
  body = [f"%r:{n} = \"stablehlo.sort\"(" + ", ".join(f"%p{k}" for k in range(n)) + f") ({{\n^bb0({x}):\n"
          "%c = stablehlo.compare LT, %x0, %y0 : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
          f"stablehlo.return %c : tensor<i1>\n}}) {{dimension = 1 : i64, is_stable = true}} : ({types}) -> ({types})"]
  return wide(n, body, [f"r#{k}" for k in range(n)])


@family(30)
def sort_by_keys(n):
  """Lexicographic: every operand is a key."""
  I = "tensor<64xi32>"
  types = ", ".join([I] * n)
  x = ", ".join(f"%x{k}: tensor<i32>, %y{k}: tensor<i32>" for k in range(n))
  pair = "(tensor<i32>, tensor<i32>) -> tensor<i1>"
  inside = [f"%l{n - 1} = stablehlo.compare LT, %x{n - 1}, %y{n - 1} : {pair}"]
  for k in reversed(range(n - 1)):
    inside += [f"%a{k} = stablehlo.compare LT, %x{k}, %y{k} : {pair}", f"%e{k} = stablehlo.compare EQ, %x{k}, %y{k} : {pair}",
               op(f"b{k}", "and", f"e{k}", f"l{k + 1}", type="tensor<i1>"), op(f"l{k}", "or", f"a{k}", f"b{k}", type="tensor<i1>")]
  arguments = ", ".join(f"%p{i}: {I}" for i in range(n))
  return (f"module {{\nfunc.func @main({arguments}) -> ({types}) {{\n%r:{n} = \"stablehlo.sort\"(" +
          ", ".join(f"%p{k}" for k in range(n)) + f") ({{\n^bb0({x}):\n" + "\n".join(inside) +
          f"\nstablehlo.return %l0 : tensor<i1>\n}}) {{dimension = 0 : i64, is_stable = true}} : ({types}) -> ({types})\n"
          f"return {', '.join(f'%r#{k}' for k in range(n))} : {types}\n}}\n}}\n")


@family(8)
def branches_in_loops(n):
  """A loop in a branch in a loop ..., n of each."""
  body = list(COUNTS)
  for i in range(n):
    body += begin_while(i, f"b{i - 1}" if i else "v0")
    body += [f"%q{i} = stablehlo.compare LT, %i{i}, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>",
             f"%r{i} = \"stablehlo.if\"(%q{i}) ({{"]
  body.append(dot("d", f"b{n - 1}"))
  for i in reversed(range(n)):
    body.append(f"stablehlo.return %{f'w{i + 1}#1' if i + 1 < n else 'd'} : {T}\n}}, {{\nstablehlo.return %b{i} : {T}\n}})"
                f" : (tensor<i1>) -> {T}")
    body += end_while(i, f"r{i}")
  return main(body, "w0#1")


@family(4)
def dimensions(n):
  """Arrays of rank n: moved, reduced, padded and broadcast."""
  def of(sizes):
    return "tensor<" + "".join(f"{s}x" for s in sizes) + "f32>"
  sizes = [2 if i % 4 == 0 else 3 if i == 1 else 1 for i in range(n)]
  t, back = of(sizes), of(sizes[::-1])
  body = ["%z = stablehlo.constant dense<0.0> : tensor<f32>",
          f"%a = stablehlo.transpose %v0, dims = [{', '.join(str(i) for i in reversed(range(n)))}] : ({t}) -> {back}",
          f"%b = stablehlo.reverse %a, dims = [0, {n - 1}] : {back}",
          f"%c = stablehlo.transpose %b, dims = [{', '.join(str(i) for i in reversed(range(n)))}] : ({back}) -> {t}",
          op("d", "add", "c", "v0", type=t),
          f"%e = stablehlo.reduce(%d init: %z) applies stablehlo.add across dimensions = [{n - 1}] : ({t}, tensor<f32>) -> {of(sizes[:-1])}",
          f"%f = stablehlo.broadcast_in_dim %e, dims = [{', '.join(str(i) for i in range(n - 1))}] : ({of(sizes[:-1])}) -> {t}",
          f"%g = stablehlo.pad %f, %z, low = [{', '.join(['1'] + ['0'] * (n - 1))}], high = [{', '.join(['-1'] + ['0'] * (n - 1))}], "
          f"interior = [{', '.join(['0'] * n)}] : ({t}, tensor<f32>) -> {t}"]
  return main(body, "g", t, f"%v0: {t}")


@family(60)
def moved_again_and_again(n):
  """Nothing but movement: no op computes between two reshapes."""
  body, types = [], ["tensor<4x6x8xf32>", "tensor<8x4x6xf32>", "tensor<32x6xf32>"]
  for i in range(n):
    body += [f"%a{i} = stablehlo.transpose %v{i}, dims = [2, 0, 1] : ({types[0]}) -> {types[1]}",
             f"%b{i} = stablehlo.reshape %a{i} : ({types[1]}) -> {types[2]}",
             f"%v{i + 1} = stablehlo.reshape %b{i} : ({types[2]}) -> {types[0]}"]
  return main(body, v(n), types[0], f"%v0: {types[0]}")


# ---- Several devices -------------------------------------------------------------------------------------
MESH = "module attributes {mhlo.num_partitions = 8 : i32} {\nsdy.mesh @mesh = <[\"x\"=8]>\n"


@family(100)
def sharded(n):
  body = []
  for i in range(1, n + 1):
    body.append(dot(v(i), v(i - 1)) if i % 10 == 0 else op(v(i), kind(i), v(i - 1), v(i - 4)))
    if i % 25 == 0:
      body.append(f"%s{i} = sdy.sharding_constraint %v{i} <@mesh, [{{\"x\"}}, {{}}]> : {T}")
  sharding = "{sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {}]>}"
  return main(body, v(n), arguments=f"%v0: {T} {sharding}").replace("module {\n", MESH, 1)


@family(30)
def all_reduces(n):
  body = []
  for i in range(n):
    body += [f"%a{i} = \"stablehlo.all_reduce\"(%v{i}) ({{\n^bb0(%x{i}: tensor<f32>, %y{i}: tensor<f32>):\n"
             f"%z{i} = stablehlo.add %x{i}, %y{i} : tensor<f32>\nstablehlo.return %z{i} : tensor<f32>\n}}) "
             "{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, channel_handle = "
             f"#stablehlo.channel_handle<handle = {i + 1}, type = 1>, use_global_device_ids}} : ({T}) -> {T}",
             dot(v(i + 1), f"a{i}")]
  return main(body, v(n)).replace("module {\n", MESH, 1)


# One value, n sums over the devices: they may be one.
@family(30)
def all_reduces_beside(n):
  body = []
  for i in range(n):
    body += [f"%c{i} = stablehlo.constant dense<{i + 2}.0> : {T}", op(f"a{i}", "multiply", "v0", f"c{i}"),
             f"%r{i} = \"stablehlo.all_reduce\"(%a{i}) ({{\n^bb0(%x{i}: tensor<f32>, %y{i}: tensor<f32>):\n"
             f"%z{i} = stablehlo.add %x{i}, %y{i} : tensor<f32>\nstablehlo.return %z{i} : tensor<f32>\n}}) "
             "{replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>, channel_handle = "
             f"#stablehlo.channel_handle<handle = {i + 1}, type = 1>, use_global_device_ids}} : ({T}) -> {T}"]
  return several(n, body).replace("module {\n", MESH, 1)


# ---- Chains of every elementwise op -----------------------------------------------------------------------
def elementwise_ops():
  """(op, operands) of src/hlo/ops.def."""
  text = (ROOT / "src/hlo/ops.def").read_text()
  for m in re.finditer(r'AT_HLO_OP\(\w+,\s*"(\w+)",\s*(-?\d+),\s*(-?\d+),\s*-?\d+,\s*([^,]+),', text):
    if "ELEMENTWISE" in m[4] and m[2] == m[3] and 1 <= int(m[2]) <= 3:
      yield m[1], int(m[2])


def chain(name, count, dtype, joined):
  """Every value from the one before it; joined: and from the one before that."""
  def write(n):
    extra, arguments = [], [f"%v0: {dtype}[64,32]"]
    if name == "select":
      arguments.append("%p: bool[64,32]")
      extra = ["p"]
    lines = []
    for i in range(1, n + 1):
      rest = count - len(extra)
      operands = extra + [v(i - 1)] + [v(i - 2) if joined else "v0"] * (rest - 1)
      lines.append(f"  %v{i} = {name} {', '.join('%' + o for o in operands)} : {dtype}[64,32]")
    return hlo(arguments, lines, v(n), f"{dtype}[64,32]")
  return write


def hlo(arguments, lines, result, type):
  """The text form of hlo numbers its values."""
  text = (f"hlo module \"t\" entry=\"main\" {{\nfunc \"main\" ({', '.join(arguments)}) -> ({type}) {{\n" +
          "\n".join(lines) + f"\n  return %{result}\n}}\n}}\n")
  number = {}
  return re.sub(r"%(\w+)", lambda m: f"%{number.setdefault(m[1], len(number))}", text)


def op_families(n=24):
  for name, count in elementwise_ops():
    if name in ("compare", "complex", "reduce_precision"):  # the result is of another type, or attributes
      continue
    for dtype in ("f32", "i32", "u32", "bool", "complex<f32>", "bf16", "f64"):
      yield f"{name}.{dtype}", n, chain(name, count, dtype, False)
      if count > 1:
        yield f"{name}.{dtype}.joined", n, chain(name, count, dtype, True)


def all_families():
  found = dict(FAMILIES)
  found.update((name, (n, write)) for name, n, write in op_families())
  return found
