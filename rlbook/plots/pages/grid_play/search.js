// Monte Carlo tree search: simulate moves before making one. The model is used as a simulator.
// `c` weighs exploration against returns scaled to [0, 1]; `rollout` random moves follow a new node.

const makeNode = (state, terminated) => ({ state, terminated, visits: 0, count: [0, 0, 0, 0], mean: [0, 0, 0, 0], children: [{}, {}, {}, {}] });
const makeTree = (state) => ({ root: makeNode(state, false), low: Infinity, high: -Infinity, simulations: 0, nodes: 1 });

// UCB1: the largest Q(s, a) + c √(ln N(s) / N(s, a)), Q scaled by the returns met so far; an action never tried goes first.
function selectAction(tree, node, c, random) {
  const { count, mean, visits } = node, untried = [0, 1, 2, 3].filter((action) => count[action] === 0);
  if (untried.length > 0) return untried[Math.floor(random() * untried.length)];
  const bonus = returnsRange(tree) * c * Math.sqrt(Math.log(visits));
  let best = 0, highest = mean[0] + bonus / Math.sqrt(count[0]), ties = 1;
  for (let action = 1; action < 4; action++) {
    const score = mean[action] + bonus / Math.sqrt(count[action]);
    if (score > highest) [best, highest, ties] = [action, score, 1];
    else if (score === highest && random() * ++ties < 1) best = action;
  }
  return best;
}

const returnsRange = ({ low, high }) => high > low ? high - low : 1;

// One simulation: down the tree to a new node, random moves from there, and the return back up to the root.
function simulate(tree, world, { gamma, c, rollout: depth }, random) {
  const path = [];
  let node = tree.root, isNew = false;
  while (!isNew && !node.terminated) {
    const action = selectAction(tree, node, c, random);
    const { next, reward, terminated } = sampleOutcome(world, node.state, action, random);
    const key = 2 * next + Number(terminated);
    isNew = !(key in node.children[action]);
    if (isNew) {
      node.children[action][key] = makeNode(next, terminated);
      tree.nodes += 1;
    }
    path.push({ node, action, reward });
    node = node.children[action][key];
  }
  if (node.terminated) node.visits += 1;
  const { rollout, G: leaf } = randomMoves(world, node, gamma, depth, random);
  let G = leaf;
  for (const { node: above, action, reward } of [...path].reverse()) {
    G = reward + gamma * G;
    above.visits += 1;
    above.count[action] += 1;
    above.mean[action] += (G - above.mean[action]) / above.count[action];
    tree.low = Math.min(tree.low, G);
    tree.high = Math.max(tree.high, G);
  }
  tree.simulations += 1;
  return { path: [...path.map((edge) => edge.node.state), node.state], action: path[0].action, rollout, leaf, G };
}

function randomMoves(world, { state, terminated }, gamma, depth, random) {
  const rollout = [];
  let G = 0, discount = 1;
  while (!terminated && rollout.length < depth) {
    const outcome = sampleOutcome(world, state, Math.floor(random() * 4), random);
    G += discount * outcome.reward;
    discount *= gamma;
    ({ next: state, terminated } = outcome);
    rollout.push(state);
  }
  return { rollout, G };
}

// What is known from the next state on, or a new tree where the search did not foresee it. `simulations` counts those of this move.
function treeAfter(tree, action, next) {
  const root = tree.root.children[action][2 * next];
  return root ? { ...tree, root, simulations: 0, nodes: nodesUnder(root) } : makeTree(next);
}

const nodesUnder = (node) => node.children.reduce((sum, children) => Object.values(children).reduce((total, child) => total + nodesUnder(child), sum), 1);

// The actions tried most often at the root; among those, the ones of the highest value.
function mostVisited({ count, mean }) {
  const most = Math.max(...count), highest = Math.max(...mean.filter((_, action) => count[action] === most));
  return [0, 1, 2, 3].filter((action) => count[action] === most && mean[action] === highest);
}
