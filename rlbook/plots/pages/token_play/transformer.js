/* A causal transformer and its derivative in plain JavaScript: the model of rlbook/llm/models/architectures/transformer.py, in the same order.

   All numbers are 64-bit and stand in matrices with one row a token. An operation computes its result at once. Where it is given a
   tape, it also writes down how a gradient goes back through it; played backwards, the tape is backpropagation.

   n tokens are read behind `past` others; d numbers a token, H heads of D numbers each, V tokens in the vocabulary.
   tests/equivalence/test_token_play.py holds every number here equal to PyTorch's. */

class Matrix {
  constructor(rows, columns, data = new Float64Array(rows * columns)) {
    Object.assign(this, { rows, columns, data, slope: null });
  }

  /* dL / d(this), zero until something is added to it. */
  get gradient() {
    return (this.slope ??= new Float64Array(this.data.length));
  }
}

class Tape {
  steps = [];

  record(step) {
    this.steps.push(step);
  }

  backward() {
    while (this.steps.length) this.steps.pop()();
  }
}

/* Σ_j a[from + j] b[at + j]. Four sums side by side, because each addition would wait for the one before. */
function dot(a, from, b, at, count) {
  let one = 0, two = 0, three = 0, four = 0, j = 0;
  for (; j + 3 < count; j += 4) {
    one += a[from + j] * b[at + j];
    two += a[from + j + 1] * b[at + j + 1];
    three += a[from + j + 2] * b[at + j + 2];
    four += a[from + j + 3] * b[at + j + 3];
  }
  for (; j < count; j++) one += a[from + j] * b[at + j];
  return one + two + three + four;
}

/* out[at + j] += scale · a[from + j]. */
function addScaled(out, at, scale, a, from, count) {
  for (let j = 0; j < count; j++) out[at + j] += scale * a[from + j];
}

/* Rows of a table: token ids → [n, d]. */
function embed(table, tokens, tape) {
  const d = table.columns, y = new Matrix(tokens.length, d);
  tokens.forEach((token, i) => y.data.set(table.data.subarray(token * d, (token + 1) * d), i * d));
  tape?.record(() => tokens.forEach((token, i) => addScaled(table.gradient, token * d, 1, y.gradient, i * d, d)));
  return y;
}

/* y = x wᵀ: x [n, d], w [m, d] → [n, m].   dx = dy w,  dw = dyᵀ x */
function linear(x, w, tape) {
  const n = x.rows, d = x.columns, m = w.rows, y = new Matrix(n, m);
  for (let i = 0; i < n; i++) for (let o = 0; o < m; o++) y.data[i * m + o] = dot(x.data, i * d, w.data, o * d, d);
  tape?.record(() => {
    const dx = x.gradient, dw = w.gradient, dy = y.gradient;
    for (let i = 0; i < n; i++) for (let o = 0; o < m; o++) {
      const slope = dy[i * m + o];
      if (slope === 0) continue;
      addScaled(dx, i * d, slope, w.data, o * d, d);
      addScaled(dw, o * d, slope, x.data, i * d, d);
    }
  });
  return y;
}

/* x + z, of one shape. */
function plus(x, z, tape) {
  const y = new Matrix(x.rows, x.columns, x.data.map((value, i) => value + z.data[i]));
  tape?.record(() => [x, z].forEach((part) => addScaled(part.gradient, 0, 1, y.gradient, 0, y.data.length)));
  return y;
}

/* RMSNorm: y = x r w,  r = 1 / √(mean of x² + ε).   dx = r w dy - x r³ (Σ x w dy) / d,  dw = x r dy */
function rmsNorm(x, w, eps, tape) {
  const d = x.columns, y = new Matrix(x.rows, d), r = new Float64Array(x.rows);
  for (let i = 0; i < x.rows; i++) {
    r[i] = 1 / Math.sqrt(dot(x.data, i * d, x.data, i * d, d) / d + eps);
    for (let j = 0; j < d; j++) y.data[i * d + j] = x.data[i * d + j] * r[i] * w.data[j];
  }
  tape?.record(() => {
    for (let i = 0; i < x.rows; i++) {
      let sum = 0;
      for (let j = 0; j < d; j++) sum += x.data[i * d + j] * w.data[j] * y.gradient[i * d + j];
      for (let j = 0; j < d; j++) {
        const at = i * d + j;
        x.gradient[at] += r[i] * w.data[j] * y.gradient[at] - x.data[at] * r[i] ** 3 * sum / d;
        w.gradient[j] += x.data[at] * r[i] * y.gradient[at];
      }
    }
  });
  return y;
}

/* RoPE: in each head, numbers i and i + D/2 are a point in the plane, turned by position · θ^(-2i/D). The gradient is turned back. */
function rotated(x, past, heads, theta, tape) {
  const width = x.columns / heads, half = width / 2, y = new Matrix(x.rows, x.columns);
  const turn = (from, to, direction) => {
    for (let i = 0; i < x.rows; i++) for (let j = 0; j < half; j++) {
      const angle = direction * (past + i) * theta ** (-j / half), cos = Math.cos(angle), sin = Math.sin(angle);
      for (let h = 0; h < heads; h++) {
        const left = i * x.columns + h * width + j, right = left + half;
        to[left] += from[left] * cos - from[right] * sin;
        to[right] += from[right] * cos + from[left] * sin;
      }
    }
  };
  turn(x.data, y.data, 1);
  tape?.record(() => turn(y.gradient, x.gradient, -1));
  return y;
}

/* Each token's mean of the values up to it, weighted by softmax(q · k / √D): q [n, H D], k and v [past + n, H D] → [n, H D].
   With weights w:  dw = dy · v,  dscore = w (dw - Σ w dw) */
function attention(q, k, v, heads, tape) {
  const width = q.columns / heads, row = q.columns, past = k.rows - q.rows, y = new Matrix(q.rows, row);
  const weights = [];
  const each = (visit) => {
    for (let i = 0; i < q.rows; i++) for (let h = 0; h < heads; h++) visit(i * row + h * width, h * width, past + i + 1, i * heads + h);
  };
  each((at, head, seen, which) => {
    const score = new Float64Array(seen);
    for (let s = 0; s < seen; s++) score[s] = dot(q.data, at, k.data, s * row + head, width) / Math.sqrt(width);
    const weight = (weights[which] = softmax(score));
    for (let s = 0; s < seen; s++) addScaled(y.data, at, weight[s], v.data, s * row + head, width);
  });
  tape?.record(() => each((at, head, seen, which) => {
    const weight = weights[which], slope = new Float64Array(seen);
    for (let s = 0; s < seen; s++) {
      slope[s] = dot(y.gradient, at, v.data, s * row + head, width);
      addScaled(v.gradient, s * row + head, weight[s], y.gradient, at, width);
    }
    const mean = dot(weight, 0, slope, 0, seen);
    for (let s = 0; s < seen; s++) {
      const score = weight[s] * (slope[s] - mean) / Math.sqrt(width);
      addScaled(q.gradient, at, score, k.data, s * row + head, width);
      addScaled(k.gradient, s * row + head, score, q.data, at, width);
    }
  }));
  return y;
}

/* SwiGLU's middle: silu(gate) · up,  silu(x) = x σ(x).   dsilu = σ (1 + x (1 - σ)) */
function gated(gate, up, tape) {
  const y = new Matrix(gate.rows, gate.columns), sigma = gate.data.map((x) => 1 / (1 + Math.exp(-x)));
  for (let i = 0; i < y.data.length; i++) y.data[i] = gate.data[i] * sigma[i] * up.data[i];
  tape?.record(() => {
    for (let i = 0; i < y.data.length; i++) {
      gate.gradient[i] += y.gradient[i] * up.data[i] * sigma[i] * (1 + gate.data[i] * (1 - sigma[i]));
      up.gradient[i] += y.gradient[i] * gate.data[i] * sigma[i];
    }
  });
  return y;
}

function softmax(logits) {
  const top = Math.max(...logits), raised = logits.map((logit) => Math.exp(logit - top));
  const total = raised.reduce((sum, value) => sum + value, 0);
  return raised.map((value) => value / total);
}

class Transformer {
  /* sizes: {layers, heads, eps, theta}; weights: name → Matrix, under the names of a Hugging Face folder of a Llama. */
  constructor(sizes, weights) {
    Object.assign(this, { sizes, weights });
  }

  copy() {
    return new Transformer(this.sizes, mapped(this.weights, (w) => new Matrix(w.rows, w.columns, w.data.slice())));
  }

  /* Logits of the next token behind each of `tokens`: [n, V]. A cache, a list that is empty at first, holds the keys and values of
     the tokens before these and is extended; it is for writing, and no gradient goes back into it. */
  forward(tokens, cache = [], tape = null) {
    const { layers, heads, eps, theta } = this.sizes, past = cache.length ? cache[0][0].rows : 0;
    let x = embed(this.weights["model.embed_tokens.weight"], tokens, tape);
    for (let layer = 0; layer < layers; layer++) {
      const w = (name) => this.weights[`model.layers.${layer}.${name}.weight`];
      const a = rmsNorm(x, w("input_layernorm"), eps, tape);
      const q = rotated(linear(a, w("self_attn.q_proj"), tape), past, heads, theta, tape);
      let k = rotated(linear(a, w("self_attn.k_proj"), tape), past, heads, theta, tape);
      let v = linear(a, w("self_attn.v_proj"), tape);
      if (past) [k, v] = [joined(cache[layer][0], k), joined(cache[layer][1], v)];
      cache[layer] = [k, v];
      x = plus(x, linear(attention(q, k, v, heads, tape), w("self_attn.o_proj"), tape), tape);
      const b = rmsNorm(x, w("post_attention_layernorm"), eps, tape);
      const middle = gated(linear(b, w("mlp.gate_proj"), tape), linear(b, w("mlp.up_proj"), tape), tape);
      x = plus(x, linear(middle, w("mlp.down_proj"), tape), tape);
    }
    return linear(rmsNorm(x, this.weights["model.norm.weight"], eps, tape), this.weights["lm_head.weight"], tape);
  }
}

function joined(above, below) {
  const data = new Float64Array(above.data.length + below.data.length);
  data.set(above.data);
  data.set(below.data, above.data.length);
  return new Matrix(above.rows + below.rows, above.columns, data);
}

const mapped = (object, change) => Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));

/* The matrices of a safetensors file of 16-bit floats: eight bytes of length, a header in JSON, the numbers. A vector is one row. */
function readSafetensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), length = Number(view.getBigUint64(0, true));
  const { __metadata__, ...header } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  return mapped(header, ({ dtype, shape, data_offsets: [start, end] }) => {
    if (dtype !== "F16") throw new Error(`weights must be 16-bit floats, not ${dtype}`);
    const [rows, columns] = shape.length === 1 ? [1, ...shape] : shape;
    const value = (_, i) => half(view.getUint16(8 + length + start + 2 * i, true));
    return new Matrix(rows, columns, Float64Array.from({ length: (end - start) / 2 }, value));
  });
}

/* A 16-bit float: one bit of sign, five of the exponent, ten of the fraction. */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent ? sign * 2 ** (exponent - 15) * (1 + fraction / 1024) : sign * 2 ** -14 * (fraction / 1024);
}
