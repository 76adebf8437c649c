// A grid world: what its map says, what a move leads to, and what it pays.
// A state is a cell's number, row * columns + column, and actions are numbered as in rlbook's Maze.

const ACTIONS = ["up", "down", "left", "right"];
const MOVES = [[-1, 0], [1, 0], [0, -1], [0, 1]];
const SIDEWAYS = [[2, 3], [2, 3], [0, 1], [0, 1]];     // where a slip takes an action, never backwards
const WALL = "#", START = "S", GOAL = "G", PIT = "P", CLIFF = "C", FREE = ".";
const PLAIN = { step: -1, bump: -5, goal: 10, pit: -10, cliff: -100, slip: 0, limit: 100, rewards: {} };

// The world that a description says: a map as text, and as many of the numbers of PLAIN as differ from it.
function makeWorld(description) {
  const world = { ...PLAIN, ...description };
  const lines = checkMap(world.map);
  checkNumbers(world);
  world.rows = lines.length;
  world.columns = lines[0].length;
  world.cells = [...lines.join("").replaceAll(" ", FREE)];
  world.numStates = world.cells.length;
  world.start = world.cells.indexOf(START);
  world.terminal = world.cells.map((cell) => cell === WALL || cell === GOAL || cell === PIT);
  world.next = world.cells.map((_, state) => MOVES.map((_, action) => neighbour(world, state, action)));
  world.reward = world.cells.map((_, state) => MOVES.map((_, action) => payment(world, state, action)));
  return world;
}

function checkMap(map) {
  const lines = String(map).replace(/^[\r\n]+|[\r\n]+$/g, "").split(/\r?\n/);
  if (lines.some((line) => line.length !== lines[0].length)) throw new Error("the map's rows must be equally long");
  const strange = lines.join("").match(/[^#SGPC. ]/);
  if (strange) throw new Error(`the map may contain # S G P C and . only, got ${JSON.stringify(strange[0])}`);
  const starts = lines.join("").split(START).length - 1;
  if (starts !== 1) throw new Error(`the map must have exactly one start S, got ${starts}`);
  return lines;
}

function checkNumbers(world) {
  for (const name of ["step", "bump", "goal", "pit", "cliff"])
    if (!Number.isFinite(world[name])) throw new Error(`${name} must be a number, got ${world[name]}`);
  for (const [cell, pays] of Object.entries(world.rewards))
    if (!/^\d+,\d+$/.test(cell) || !Number.isFinite(pays)) throw new Error(`rewards must be "row,column": number, got ${cell}: ${pays}`);
  if (!(world.slip >= 0 && world.slip <= 1)) throw new Error(`slip must be in [0, 1], got ${world.slip}`);
  if (!(Number.isInteger(world.limit) && world.limit >= 1)) throw new Error(`limit must be a whole number of at least 1, got ${world.limit}`);
}

// The cell that a move enters; -1 where it bumps into a wall or into the edge of the map.
function entered(world, state, action) {
  const row = Math.floor(state / world.columns) + MOVES[action][0], column = state % world.columns + MOVES[action][1];
  const outside = row < 0 || row >= world.rows || column < 0 || column >= world.columns;
  return outside || world.cells[row * world.columns + column] === WALL ? -1 : row * world.columns + column;
}

function neighbour(world, state, action) {
  const cell = entered(world, state, action);
  if (world.terminal[state] || cell < 0) return state;
  return world.cells[cell] === CLIFF ? world.start : cell;
}

function payment(world, state, action) {
  const cell = entered(world, state, action);
  if (world.terminal[state]) return 0;
  if (cell < 0) return world.bump;
  const place = `${Math.floor(cell / world.columns)},${cell % world.columns}`;
  if (place in world.rewards) return world.rewards[place];
  return { [GOAL]: world.goal, [PIT]: world.pit, [CLIFF]: world.cliff }[world.cells[cell]] ?? world.step;
}

// [S] bool: the cells that can be walked to from the start.
function reached(world) {
  const found = world.cells.map(() => false), open = [world.start];
  found[world.start] = true;
  for (const state of open) for (const next of world.next[state]) if (!found[next]) {
    found[next] = true;
    open.push(next);
  }
  return found;
}

// All that an action may lead to: to either side with slip / 2 each, straight on with 1 - slip.
function outcomes(world, state, action) {
  const [one, other] = SIDEWAYS[action];
  return [[one, world.slip / 2], [other, world.slip / 2], [action, 1 - world.slip]]
    .filter(([, probability]) => probability > 0)
    .map(([taken, probability]) => {
      const next = world.next[state][taken];
      return { taken, probability, next, reward: world.reward[state][taken], terminated: world.terminal[next] };
    });
}

// One of them, by a random number in [0, 1); none is drawn where there is no choice.
function sampleOutcome(world, state, action, random) {
  const possible = outcomes(world, state, action);
  let place = 0;
  if (possible.length > 1) {
    const drawn = random();
    let cumulative = possible[0].probability;
    while (cumulative <= drawn && place < possible.length - 1) cumulative += possible[++place].probability;
  }
  return possible[place];
}

// Random numbers in [0, 1) that depend on the seed alone: Tommy Ettinger's mulberry32.
function mulberry32(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6D2B79F5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
