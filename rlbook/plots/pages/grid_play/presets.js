// The worlds to begin with. The first three are the book's own, the fourth is FrozenLake with its slippery ice.

const PRESETS = {
  "Maze-v0": { map: "S..#G\n.#.#.\n.#...\n...#.\n.#..." },
  "CliffWalking": { map: "............\n............\n............\nSCCCCCCCCCCG", step: -1, bump: -1, goal: -1, cliff: -100, limit: 200 },
  "open room": { map: "........\n........\n........\n...S....\n........\n........\n.......G", step: -1, bump: -1, goal: 10 },
  "FrozenLake": { map: "S...\n.P.P\n...P\nP..G", step: 0, bump: 0, goal: 1, pit: 0, slip: 2 / 3 },
};
