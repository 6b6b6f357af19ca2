// The lines of a chat as a tree of turns. Lines share the turns of their past, so each turn is there once.

/** @typedef {{id: string, version: number, agent: string, ended_by: string, asked: string, answered: string, began_at: number}} LineTurn */
/** @typedef {{id: string, keys: string[], title: string, after: string | null, exchanges: LineTurn[], is_listed: boolean, is_aside: boolean}} Line */
/** @typedef {{id: string, current: string, lines: Line[], is_whole: boolean}} Family */
/** @typedef {{turn: LineTurn, line: Line, children: Node[], here: boolean}} Node */

/**
 * The tree: what begins by itself, and the asides, the oldest first. `here` are the turns of the line that is shown.
 * @param {Family} family @param {string} shown  the id of that line
 */
export function treeOf(family, shown) {
    /** @type {Map<string, Node>} */
    const nodes = new Map();
    for (const line of family.lines)
        for (const turn of line.exchanges) nodes.set(turn.id, { turn, line, children: [], here: false });
    /** @type {Node[]} */
    const roots = [];
    /** @type {Map<string, string | null>} */
    const before = new Map();
    for (const line of family.lines)
        line.exchanges.forEach((turn, n) => {
            const parent = n ? line.exchanges[n - 1].id : line.after;
            const node = /** @type {Node} */ (nodes.get(turn.id));
            before.set(turn.id, parent);
            // The turn before it may be of a line that was deleted, or that is not among those shown.
            (nodes.get(parent ?? '')?.children ?? roots).push(node);
        });
    const line = family.lines.find((each) => each.id === shown);
    let at = line ? (line.exchanges.at(-1)?.id ?? line.after) : null;
    while (at) {
        const node = nodes.get(at);
        if (node) node.here = true;
        at = before.get(at) ?? null;
    }
    const byAge = (/** @type {Node} */ one, /** @type {Node} */ other) => (one.turn.id < other.turn.id ? -1 : 1);
    for (const node of nodes.values()) node.children.sort(byAge);
    roots.sort(byAge);
    const isAside = (/** @type {Node} */ each) => each.line.is_aside && !each.here;
    return { roots: roots.filter((each) => !isAside(each)), asides: roots.filter(isAside) };
}

/** A node and those after it, up to where the tree branches. @param {Node} node */
export function runFrom(node) {
    const run = [node];
    while (/** @type {Node} */ (run.at(-1)).children.length === 1)
        run.push(/** @type {Node} */ (run.at(-1)).children[0]);
    return run;
}
